"""gRPC server reflection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection, reflection_pb2

__all__ = ["enable_reflection"]


def enable_reflection(
    server: grpc.aio.Server, services: Iterable[Any], renamed: tuple[Any, str]
) -> None:
    """Enable reflection: clients can read the server's descriptors.

    Parameters
    ----------
    services: descriptors of services that are registered under their own names.
    renamed: the descriptor of a service, and the other name under which it is registered.
    """
    local_service, name = renamed
    # A separate pool: in the process-wide default pool, generated code of a client library may
    # already use the protocol's names.
    pool = DescriptorPool()
    names = [reflection.SERVICE_NAME, name]
    for service in services:
        names.append(service.full_name)
        _add(pool, service.file)
    _add(pool, reflection_pb2.DESCRIPTOR)
    pool.Add(_with_package(local_service.file, name.rpartition(".")[0]))
    reflection.enable_server_reflection(names, server, pool)


def _add(pool: Any, file: Any) -> None:
    for dependency in file.dependencies:
        _add(pool, dependency)
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    pool.Add(proto)


def _with_package(file: Any, package: str) -> FileDescriptorProto:
    """Return a file descriptor with all its definitions moved to another package."""
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    old_prefix, proto.package = f".{proto.package}.", package
    proto.name = f"{package}.proto"
    messages = list(proto.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(old_prefix, f".{package}.")
    for service in proto.service:
        for method in service.method:
            method.input_type = method.input_type.replace(old_prefix, f".{package}.")
            method.output_type = method.output_type.replace(old_prefix, f".{package}.")
    return proto
