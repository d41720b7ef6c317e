# The image that manifests/ run: `spotweave webhook`, `spotweave rebalancer`, and the command line.
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements/run.txt requirements/build.txt requirements/
RUN python3 -m venv /opt/spotweave \
 && /opt/spotweave/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements/run.txt \
 && python3 -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY placement placement
COPY report report
COPY serving serving
COPY kube kube
COPY webhook webhook
COPY rebalancer rebalancer
COPY certs certs
COPY dashboard dashboard
COPY localcluster localcluster
COPY generators generators
COPY demo demo
COPY cli cli
COPY manifests manifests
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
 && /opt/spotweave/bin/pip install --no-cache-dir --no-deps /dist/*.whl

FROM ${PYTHON}
COPY --from=build /opt/spotweave /opt/spotweave
# Memory goes back to the system: one arena instead of one per thread (20 MiB at 150,000 pods), and large buffers such
# as the page's answers apart from it (25 MiB).
ENV PATH=/opt/spotweave/bin:$PATH PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072
USER 65532:65532
ENTRYPOINT ["spotweave"]
CMD ["--help"]
