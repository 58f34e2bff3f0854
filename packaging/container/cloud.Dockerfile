# The cloud programs with Spark. From the checkout: docker build -f packaging/container/cloud.Dockerfile -t oncegate-cloud .
# Arguments are those of oncegate-cloud; the jars of Kafka and Delta, with the pinned checksums, are Spark's own here.

FROM debian:trixie-slim
# procps: Spark's scripts call ps.
# hadolint ignore=DL3008 # Debian's stable release is the pin
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates openjdk-21-jre-headless procps python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10002 --user-group --home-dir /var/lib/oncegate-cloud --no-create-home --shell /usr/sbin/nologin oncegate-cloud \
 && install --directory --mode=750 --owner=oncegate-cloud --group=oncegate-cloud /var/lib/oncegate-cloud
ENV SPARK_HOME=/opt/oncegate/lib/python3.13/site-packages/pyspark \
    ONCEGATE_CACHE=/var/lib/oncegate-cloud/cache \
    PATH=/opt/oncegate/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /source
COPY pyproject.toml README.md LICENSE packaging/cloud.txt ./
COPY agent agent
COPY cloud cloud
COPY contract contract
COPY simulators simulators
RUN python3 -m venv /opt/oncegate \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r cloud.txt \
 && pip install --no-cache-dir --disable-pip-version-check --no-deps . \
 && ONCEGATE_CACHE=/tmp/jars python3 -c 'from cloud.jars import coordinates, download; download.ensure(coordinates.read_lock()[coordinates.SPARK])' \
 && find /tmp/jars -name '*.jar' -exec cp -n -t "$SPARK_HOME/jars" {} + \
 && rm -rf /tmp/jars /root/.ivy2* /root/.cache /source/*
USER 10002:10002
WORKDIR /var/lib/oncegate-cloud
VOLUME /var/lib/oncegate-cloud
STOPSIGNAL SIGTERM
ENTRYPOINT ["oncegate-cloud"]
CMD ["--help"]
