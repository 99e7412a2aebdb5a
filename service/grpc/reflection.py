"""gRPC server reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from service.grpc.rpc import Context
from service.operations import operation

#: The descriptor of the service.
REFLECTION = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
#: How long one RPC may take; a client reads all descriptors within milliseconds.
_MAX_SECONDS = 10.0


class Reflection:
    """`grpc.reflection.v1alpha.ServerReflection`: the descriptors of the server's services.

    One RPC at a time: the setting `public_docs` opens it to callers without a key, and each of its
    messages may be as large as a batch.

    Parameters
    ----------
    services: descriptors of services that are registered under their own names.
    renamed: the descriptor of a service, and the other name under which it is registered.
    """

    def __init__(self, services: Iterable[Any], renamed: tuple[Any, str]) -> None:
        local_service, name = renamed
        # A separate pool: in the process-wide default pool, generated code of a client library may
        # already use the protocol's names.
        pool = DescriptorPool()
        names = [REFLECTION.full_name, name]
        for service in services:
            names.append(service.full_name)
            _add(pool, service.file)
        _add(pool, REFLECTION.file)
        pool.Add(_with_package(local_service.file, name.rpartition(".")[0]))
        self._servicer = ReflectionServicer(names, pool)
        self._turn = asyncio.Lock()

    @operation("docs")
    async def server_reflection_info(
        self, requests: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[Any]:
        """Answer each request for names, files or extensions."""
        async with asyncio.timeout(_MAX_SECONDS), self._turn:
            async for response in self._servicer.ServerReflectionInfo(requests, context):
                yield response


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
