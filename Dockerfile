# Three images: `serve` answers requests and has no torch; `worker` runs jobs on the CPU;
# `worker-gpu` runs jobs on NVIDIA GPUs. Example:
#   docker build --target serve --tag recalib-serve .
# Every package is installed with its hash (deploy/requirements, `make image-requirements`), without
# resolving dependencies again. `make pin-images` adds the digest of the base image.
# No image has a compiler. The root file system may be read-only if /tmp and /var/lib/recalib are
# writable. docs/deployment.md shows how to run the images.

FROM python:3.11.15-slim-bookworm AS base
# Bytecode is compiled once, below: a read-only root file system cannot store it later.
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/opt/recalib/bin:$PATH \
    RECALIB_HOME=/var/lib/recalib
# A fixed user number, because volumes and Kubernetes' runAsNonRoot depend on it.
RUN groupadd --gid 10001 recalib \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/recalib --create-home \
        --shell /usr/sbin/nologin recalib \
    # A new volume at this path belongs to the user of the image.
    && install --directory --owner 10001 --group 10001 --mode 0700 /backups
# Encrypts backups. Rebuilds of the distribution change what follows the version.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends "age=1.1.1-1*" \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /var/lib/recalib
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Recalib" \
    org.opencontainers.image.description="Calibrates the probabilities of deployed classifiers and monitors them." \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"

# Shared by all images. Dependencies come first because they change less often than the code.
FROM base AS build
ENV UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never \
    VIRTUAL_ENV=/opt/recalib
COPY deploy/requirements/build.txt /requirements/
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes \
        -r /requirements/build.txt \
    && uv venv --python /usr/local/bin/python /opt/recalib
COPY deploy/requirements/serve.txt /requirements/
RUN uv pip install --no-deps --require-hashes -r /requirements/serve.txt

# Without build isolation, which would download the build backend without a hash.
FROM build AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation \
        --wheel-dir /wheel .

# Remove files that the server never opens (an eighth): tests, headers, Arrow Flight.
FROM build AS build-serve
COPY --from=wheel /wheel /wheel
RUN uv pip install --no-deps /wheel/*.whl \
    && uv pip check \
    && find "$VIRTUAL_ENV/lib" \( \
        -path "*/site-packages/*/tests" \
        -o -path "*/site-packages/onnx/backend/test" \
        -o -path "*/site-packages/pyarrow/include" \
        -o -path "*/site-packages/pyarrow/*flight*" \
        -o -path "*/site-packages/simdjson/simdjson.*" \
    \) -prune -exec rm -r {} +

FROM build AS build-worker-packages
COPY deploy/requirements/worker.txt /requirements/
RUN uv pip install --no-deps --require-hashes -r /requirements/worker.txt

# torch for the CPU is only in PyTorch's index. Its hash is checked if the file has one:
# `make pin-images` adds it.
FROM build-worker-packages AS build-worker
COPY deploy/requirements/worker-cpu.txt /requirements/
RUN uv pip install --no-deps --index-url https://download.pytorch.org/whl/cpu \
        -r /requirements/worker-cpu.txt
COPY --from=wheel /wheel /wheel
RUN uv pip install --no-deps /wheel/*.whl \
    && uv pip check

# The default build of torch on PyPI is for CUDA and includes its libraries.
FROM build-worker-packages AS build-worker-gpu
COPY deploy/requirements/worker-gpu.txt /requirements/
RUN uv pip install --no-deps --require-hashes -r /requirements/worker-gpu.txt
COPY --from=wheel /wheel /wheel
RUN uv pip install --no-deps /wheel/*.whl \
    && uv pip check

FROM base AS serve
COPY --from=build-serve /opt/recalib /opt/recalib
COPY --chmod=0755 deploy/backup.sh /usr/local/bin/recalib-backup
# Loopback is unreachable from outside a container. Jobs run in the other images, which have torch.
ENV RECALIB_HOST=0.0.0.0 \
    RECALIB_JOB_WORKERS=0
USER 10001:10001
EXPOSE 8000 8001
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-m", "service.health.probe"]
ENTRYPOINT ["recalib"]
CMD ["serve"]

FROM base AS worker
COPY --from=build-worker /opt/recalib /opt/recalib
USER 10001:10001
# A worker has no port: the check is whether it reaches its queue.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-m", "training.probe"]
ENTRYPOINT ["recalib"]
CMD ["worker"]

FROM base AS worker-gpu
COPY --from=build-worker-gpu /opt/recalib /opt/recalib
# Read by NVIDIA's container toolkit.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-m", "training.probe"]
ENTRYPOINT ["recalib"]
CMD ["worker"]
