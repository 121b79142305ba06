# The service without the embedded PostgreSQL and without development packages. Set DATABASE_URL to your PostgreSQL.
FROM node:24-slim AS build
WORKDIR /build
COPY package.json package-lock.json tsconfig.json tsconfig.build.json ./
COPY scripts scripts
COPY web web
COPY src src
COPY tools tools
# The TypeScript compiler's binary is an optional package, so optional packages are pruned after the build.
RUN npm ci && npm prune --omit=dev --omit=optional --ignore-scripts

FROM node:24-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000
WORKDIR /app
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist dist
COPY package.json ./
COPY migrations migrations
USER node
EXPOSE 3000
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/api/health`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# Start node directly: npm would not pass the stop signal of the container on reliably.
CMD ["node", "--enable-source-maps", "dist/src/cli/main.js", "serve"]
