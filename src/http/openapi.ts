/** The OpenAPI 3.1 document, which @fastify/swagger builds from the `schema` of each route, and its page. */
import swagger, { type SwaggerTransformObject } from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyInstance, RouteOptions } from 'fastify'
import { OPERATION_HEADERS, RATE_LIMIT_HEADERS, TAG_DESCRIPTIONS } from './schema-parts.ts'
import type { TSchema } from './typebox.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    documentation?: FastifySchema
  }
  interface FastifySchema {
    'x-body-optional'?: boolean
    /** headers of every response of the route, beside those of the rate limit */
    'x-response-headers'?: Array<keyof typeof OPERATION_HEADERS>
  }
}

const DESCRIPTION = `Keeps the audience of LINE official accounts.

Ids are int64 values, written as decimal strings. Times are ISO 8601 in UTC with milliseconds.
Protected endpoints require the headers \`x-client-id\`, \`x-client-secret\` and \`x-api-key\` together.
The API key selects one official account and one organization. A request can see nothing outside of that scope.

Every response carries \`RateLimit-Limit\`, \`RateLimit-Remaining\` and \`RateLimit-Reset\`, and the same with the prefix \`X-\`, unless the
rate limit is off.
Every response of an endpoint has \`Cache-Control: no-store\` and \`X-Content-Type-Options: nosniff\`.
Every error has the shape of the \`Error\` schema, and its \`requestId\` finds the request in the log.`

const header = (name: string, description: string) =>
  ({ type: 'apiKey', in: 'header', name, description }) as const

interface Operation {
  'x-body-optional'?: boolean
  'x-response-headers'?: string[]
  requestBody?: { required?: boolean }
  responses?: Record<string, { headers?: Record<string, unknown> }>
}

/**
 * Moves the schema of every later route to its config, where Fastify does not see it. Fastify would validate the input before the
 * handler resolves the scope, but the scope decides the response for any input. Fastify would also look up a serializer for each
 * response.
 */
export function useSchemasAsDocumentation(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    if (route.schema === undefined) return
    route.config = { ...route.config, documentation: route.schema }
    delete route.schema
  })
}

/** Collects the schema of every route that is added after this call. `app.swagger()` returns the document once the app is ready. */
export async function collectRouteSchemas(
  app: FastifyInstance,
  info: { title: string; version: string },
  components: Record<string, TSchema>,
  webhooks: Record<string, object>,
): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { ...info, description: DESCRIPTION, license: { name: 'MIT', identifier: 'MIT' } },
      servers: [{ url: '/' }],
      tags: Object.entries(TAG_DESCRIPTIONS).map(([name, description]) => ({ name, description })),
      webhooks,
      components: {
        // The plugin types schemas as OpenAPI 3.0, whose JSON Schema dialect is an older one.
        schemas: components as Record<string, object>,
        headers: { ...RATE_LIMIT_HEADERS, ...OPERATION_HEADERS } as Record<string, object>,
        securitySchemes: {
          clientId: header('x-client-id', 'Client id of the API client.'),
          clientSecret: header('x-client-secret', 'Client secret of the API client.'),
          apiKey: header('x-api-key', 'API key of that client. It selects the account and organization.'),
        },
      },
    },
    convertConstToEnum: false,
    // An empty list says that the operation is public.
    transform: ({ route, url }) => ({
      schema: route.config?.documentation ? { security: [], ...route.config.documentation } : { hide: true },
      url,
    }),
    transformObject: completeOperations,
  })
}

/** Does what route schemas cannot say: the plugin declares every request body as required, and knows no named headers. */
const completeOperations: SwaggerTransformObject = (source) => {
  const document = 'openapiObject' in source ? source.openapiObject : source.swaggerObject
  const paths = (document.paths ?? {}) as Record<string, Record<string, Operation>>
  for (const operation of Object.values(paths).flatMap((path) => Object.values(path))) {
    if (operation['x-body-optional'] && operation.requestBody) operation.requestBody.required = false
    const names = [...Object.keys(RATE_LIMIT_HEADERS), ...(operation['x-response-headers'] ?? [])]
    for (const response of Object.values(operation.responses ?? {})) {
      response.headers = { ...response.headers, ...referencesTo(names) }
    }
    delete operation['x-body-optional']
    delete operation['x-response-headers']
  }
  return document
}

const referencesTo = (headers: string[]) =>
  Object.fromEntries(headers.map((name) => [name, { $ref: `#/components/headers/${name}` }]))

/** Swagger UI uses data: URLs in its style sheet and loads nothing from other hosts. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

export async function documentRoutes(app: FastifyInstance): Promise<void> {
  let text: string | undefined
  app.get('/openapi.json', async (_, reply) => {
    text ??= JSON.stringify(app.swagger(), null, 2)
    return reply.type('application/json; charset=utf-8').send(text)
  })
  await app.register(async (pages) => {
    pages.addHook('onRoute', offerGetAlone)
    await pages.register(swaggerUi, {
      routePrefix: '/docs',
      staticCSP: CONTENT_SECURITY_POLICY,
      // The base layout has no field for the URL of another document.
      uiConfig: { layout: 'BaseLayout', deepLinking: true, displayRequestDuration: true },
      theme: { title: 'oa-audience API' },
    })
  })
}

/** The plugin also adds HEAD routes. */
function offerGetAlone(route: RouteOptions): void {
  if (Array.isArray(route.method)) route.method = 'GET'
}
