# The scheduler, the command line and every other face of Tocsin in one small image.
#   docker build -t tocsin .
#   docker run -e TOCSIN_URL=redis://host:6379/0 tocsin scheduler

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tocsin
WORKDIR /source
COPY constraints.txt ./
RUN /opt/tocsin/bin/pip install --constraint constraints.txt hatchling editables
COPY pyproject.toml README.md LICENSE ./
COPY broker broker
COPY scheduler scheduler
COPY workers workers
RUN /opt/tocsin/bin/pip install --constraint constraints.txt --no-build-isolation . \
 && /opt/tocsin/bin/pip uninstall --yes hatchling editables pathspec trove-classifiers

FROM python:3.13-slim
COPY --from=build /opt/tocsin /opt/tocsin
RUN useradd --system --uid 10001 --create-home --home-dir /home/tocsin tocsin
ENV PATH=/opt/tocsin/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/tocsin
STOPSIGNAL SIGTERM
# Of the scheduler; a container that runs something else says so with --no-healthcheck.
HEALTHCHECK --interval=15s --timeout=10s --start-period=15s --retries=2 \
    CMD ["tocsin", "scheduler", "--health"]
ENTRYPOINT ["tocsin"]
CMD ["scheduler"]
