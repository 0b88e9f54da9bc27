# skultr on CPUs, with what saves models (`serving`) and draws curves (`plot`):
#     docker build --tag skultr .
#     docker run --rm --volume "$PWD:/data" skultr check clicks.parquet
#     docker run --rm --volume "$PWD:/data" --entrypoint python skultr train.py
FROM python:3.13-slim AS build
RUN python -m venv /opt/skultr
ENV PATH=/opt/skultr/bin:$PATH \
    PIP_NO_CACHE_DIR=1
# torch has a layer of its own, because it is large and changes less often than skultr.
COPY constraints.txt /src/
RUN pip install torch --constraint /src/constraints.txt --index-url https://download.pytorch.org/whl/cpu
COPY . /src
RUN pip install "/src[serving,plot]"

FROM python:3.13-slim
# LightGBM takes OpenMP from the system.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/skultr /opt/skultr
ENV PATH=/opt/skultr/bin:$PATH
RUN useradd --create-home skultr
USER skultr
WORKDIR /data
ENTRYPOINT ["skultr"]
CMD ["--help"]
