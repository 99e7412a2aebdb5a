# syntax=docker/dockerfile:1
# Three images: `serve` answers requests and has no torch; `worker` does jobs on the CPU;
# `worker-gpu` on NVIDIA's. docker build --target serve --tag recalib-serve .
# None has a compiler; the root file system may be read-only where /tmp and /var/lib/recalib may be
# written to. docs/deployment.md says how they are run.

FROM python:3.11.15-slim-bookworm AS base
# Bytecode is compiled below, once: a root file system that is read-only could not take it.
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/opt/recalib/bin:$PATH \
    RECALIB_HOME=/var/lib/recalib
# A fixed number, so that volumes and Kubernetes' runAsNonRoot can rely on it.
RUN groupadd --gid 10001 recalib \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/recalib --create-home \
        --shell /usr/sbin/nologin recalib
WORKDIR /var/lib/recalib
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Recalib" \
    org.opencontainers.image.description="Makes the probabilities of deployed classifiers tell the truth, and keeps watching." \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"

# What is the same in all three: dependencies first, which change more rarely than our code.
FROM base AS build
ENV UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never \
    VIRTUAL_ENV=/opt/recalib
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.8 \
    && uv venv --python /usr/local/bin/python /opt/recalib
WORKDIR /source
COPY pyproject.toml constraints.txt ./
RUN uv pip install -c constraints.txt -r pyproject.toml --extra serve --extra s3 --extra telemetry

# Without what nothing that serves opens, an eighth of it: others' tests, headers, a part of Arrow.
FROM build AS build-serve
COPY . .
RUN uv pip install --no-deps . \
    && find "$VIRTUAL_ENV/lib" \( \
        -path "*/site-packages/*/tests" \
        -o -path "*/site-packages/onnx/backend/test" \
        -o -path "*/site-packages/pyarrow/include" \
        -o -path "*/site-packages/pyarrow/*flight*" \
        -o -path "*/site-packages/simdjson/simdjson.*" \
    \) -prune -exec rm -r {} +

FROM build AS build-worker
RUN uv pip install -c constraints.txt -r pyproject.toml --extra serve --extra s3 --extra telemetry --extra train \
    --torch-backend cpu
COPY . .
RUN uv pip install --no-deps .

# The registry's own build of torch is the one for CUDA, whose libraries come with it.
FROM build AS build-worker-gpu
RUN uv pip install -c constraints.txt -r pyproject.toml --extra serve --extra s3 --extra telemetry --extra train
COPY . .
RUN uv pip install --no-deps .

FROM base AS serve
COPY --from=build-serve /opt/recalib /opt/recalib
# A container's own loopback is nobody's; jobs are for the other images, which have torch.
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
# It listens nowhere: asked is whether it finds its queue.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-m", "training.probe"]
ENTRYPOINT ["recalib"]
CMD ["worker"]

FROM base AS worker-gpu
COPY --from=build-worker-gpu /opt/recalib /opt/recalib
# What NVIDIA's container toolkit looks at.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-m", "training.probe"]
ENTRYPOINT ["recalib"]
CMD ["worker"]
