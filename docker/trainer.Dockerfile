# The trainer. From the root of the repository:
#   docker build -f docker/trainer.Dockerfile -t ragen-trainer .

# The index of all platforms, as it was on 2026-11-24; docs/how-to/deployment.md says how to choose another.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim@sha256:2fe369e969550cde8e867afc3fe370b260140cab4a23d467074295b42163d553

FROM ${NODE_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json ./
COPY docker/packages.ts docker/
RUN node docker/packages.ts trainer \
 && npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
 && rm -rf node_modules/onnxruntime-node/bin/napi-v*/darwin node_modules/onnxruntime-node/bin/napi-v*/win32 \
    node_modules/webgpu/dist/darwin-* node_modules/webgpu/dist/win32-*

FROM ${NODE_IMAGE}
# Runs go to the volume, where the trainer looks for them: runs/ in its folder.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* \
    /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack \
    /opt/yarn-* /usr/local/bin/yarn /usr/local/bin/yarnpkg \
 && install --directory --owner=node --group=node /runs /app /app/compiled \
 && ln --symbolic /runs /app/runs
WORKDIR /app
COPY --from=packages /app/package.json ./
COPY --from=packages /app/node_modules node_modules
COPY bin bin
COPY shared shared
COPY site site
COPY trainer trainer
COPY configs configs
COPY docker/trainer.sh docker/

ENV NODE_ENV=production \
    NODE_COMPILE_CACHE=/app/compiled
USER 1000:1000
# Modules are compiled here, once: the file system of a container may be read-only. Node.js finds them under the same user.
RUN node --import ./bin/needs-node.js trainer/main.ts train configs/quickstart.yaml --dry-run > /dev/null
VOLUME /runs
STOPSIGNAL SIGTERM
# A run ends by itself, well or not: what restarts it watches its exit status.
HEALTHCHECK NONE
ENTRYPOINT ["tini", "--", "docker/trainer.sh"]
CMD ["train", "configs/quickstart.yaml"]
