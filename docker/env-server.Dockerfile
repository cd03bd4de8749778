# The environment server. From the root of the repository:
#   docker build -f docker/env-server.Dockerfile -t ragen-env-server .

# The index of all platforms, as it was on 2026-11-24; docs/how-to/deployment.md says how to choose another.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim@sha256:2fe369e969550cde8e867afc3fe370b260140cab4a23d467074295b42163d553

FROM ${NODE_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json ./
COPY docker/packages.ts docker/
RUN node docker/packages.ts env-server \
 && npm ci --omit=dev --ignore-scripts --no-audit --no-fund

FROM ${NODE_IMAGE}
# python3 runs the programs of DeepCoder, util-linux starts its sandboxes, tini collects what they leave behind.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 tini util-linux \
 && rm -rf /var/lib/apt/lists/* \
    /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack \
    /opt/yarn-* /usr/local/bin/yarn /usr/local/bin/yarnpkg \
 && install --directory --owner=node --group=node /data /app/compiled
WORKDIR /app
COPY --from=packages /app/package.json ./
COPY --from=packages /app/node_modules node_modules
COPY bin bin
COPY shared shared
COPY site site
COPY env-server env-server
COPY docker/healthcheck.ts docker/

# glibc gives memory of large buffers back to the system with these settings (docs/how-to/deployment.md, Memory).
# Any address but loopback needs tokens: give RAGEN_TOKENS, or mount a file and name it there.
ENV NODE_ENV=production \
    NODE_COMPILE_CACHE=/app/compiled \
    MALLOC_ARENA_MAX=2 \
    MALLOC_MMAP_THRESHOLD_=131072 \
    MALLOC_TRIM_THRESHOLD_=131072 \
    RAGEN_HOST=0.0.0.0 \
    RAGEN_PORT=8080 \
    RAGEN_DATA=/data
USER 1000:1000
# Modules are compiled here, once: the file system of a container may be read-only. Node.js finds them under the same user.
RUN data=$(mktemp -d); \
    node --import ./bin/needs-node.js env-server/main.ts --host 127.0.0.1 --data "$data" & \
    until node docker/healthcheck.ts || ! kill -0 $!; do sleep 1; done; \
    kill $! && wait $! && rm -r "$data"
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["node", "docker/healthcheck.ts"]
ENTRYPOINT ["tini", "--", "node", "--import", "./bin/needs-node.js", "env-server/main.ts"]
