# The cloud image for Spark on Kubernetes, whose pods are started by Spark's own script (docs/cloud.md#clusters). After
# cloud.Dockerfile: docker build -f packaging/container/spark.Dockerfile -t oncegate-spark .

FROM apache/spark:4.2.0-scala AS spark

# hadolint ignore=DL3006 # built before, from cloud.Dockerfile
FROM oncegate-cloud
USER 0:0
# hadolint ignore=DL3008 # Debian's stable release is the pin
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/*
COPY --from=spark /opt/entrypoint.sh /opt/entrypoint.sh
USER 10002:10002
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD []
