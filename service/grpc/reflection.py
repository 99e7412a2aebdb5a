"""What the server offers, for clients that ask it: gRPC's server reflection."""

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
    """Let clients ask for the server's descriptors.

    Parameters
    ----------
    services: descriptors of services under their own names.
    renamed: a service's descriptor, and the name under which it is registered instead.
    """
    own, name = renamed
    # A pool of its own: in the one that this process shares with every library, the protocol's
    # names may be taken by a client's generated code.
    pool = DescriptorPool()
    names = [reflection.SERVICE_NAME, name]
    for service in services:
        names.append(service.full_name)
        _add(pool, service.file)
    _add(pool, reflection_pb2.DESCRIPTOR)
    pool.Add(_moved(own.file, name.rpartition(".")[0]))
    reflection.enable_server_reflection(names, server, pool)


def _add(pool: Any, file: Any) -> None:
    for dependency in file.dependencies:
        _add(pool, dependency)
    found = FileDescriptorProto()
    file.CopyToProto(found)
    pool.Add(found)


def _moved(file: Any, package: str) -> FileDescriptorProto:
    """Return a file's description with all that it defines in another package."""
    found = FileDescriptorProto()
    file.CopyToProto(found)
    before, found.package = f".{found.package}.", package
    found.name = f"{package}.proto"
    messages = list(found.message_type)
    while messages:
        message = messages.pop()
        messages.extend(message.nested_type)
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(before, f".{package}.")
    for service in found.service:
        for method in service.method:
            method.input_type = method.input_type.replace(before, f".{package}.")
            method.output_type = method.output_type.replace(before, f".{package}.")
    return found
