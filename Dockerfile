# The service alone, for a PostgreSQL of yours (DATABASE_URL): no embedded database, no development packages.
FROM node:24-slim AS build
WORKDIR /build
COPY package.json package-lock.json tsconfig.json tsconfig.build.json ./
COPY src src
COPY tools tools
# The compiler is an optional package itself, so the optional ones go only afterwards.
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
# Not npm: the signal that ends the container must reach the service.
CMD ["node", "--enable-source-maps", "dist/src/cli/main.js", "serve"]
