/** Writes docs/console-openapi.json into the directory of a build, from the operations that it has. */
import { mkdirSync, writeFileSync } from 'node:fs'

const build = new URL(`../${process.argv[2]}/`, import.meta.url)
const load = (path) => import(new URL(`src/${path}`, build).href)
const { serviceVersion } = await load('config/package.js')
const { ErrorEnvelopeSchema } = await load('http/error-envelope.js')
const { OPERATIONS } = await load('operations/all.js')
const { routeOf } = await load('operations/operation.js')

const DESCRIPTION = `What the pages of the console call under \`/api\` of CONSOLE_PORT, one path per operation. It is for reading, and for
scripts of one's own installation: it may change with every version, unlike the API for clients.

The cookie of a session is required. A request that changes something also needs a same-origin \`Origin\` header. What an operator may not see
is 404, and what the role may not do is 403. A list has 50 items and \`next\`, which continues it as \`after\`.`

/** Keywords that only the command line reads. */
const OWN_KEYWORDS = ['isId', 'nullWord', 'not', 'secret', 'each']

const schemaOf = (field) =>
  JSON.parse(JSON.stringify(field, (keyword, value) => (OWN_KEYWORDS.includes(keyword) ? undefined : value)))
const isOptional = (field) => '~optional' in field || field.default !== undefined
const parameter = (place, name, schema, required) => ({ name, in: place, required, schema })
const json = (schema) => ({ content: { 'application/json': { schema } } })
const response = (name) => ({ $ref: `#/components/responses/${name}` })

const Id = { type: 'string', pattern: '^-?\\d{1,19}$' }

function operationOf(operation, method) {
  const { name, way, noun, role, does, hasTarget } = operation
  const fields = Object.entries(operation.input)
  const required = fields.flatMap(([field, schema]) => (isOptional(schema) ? [] : [field]))
  const isRead = method === 'GET'
  const parameters = [
    ...(hasTarget ? [parameter('path', 'id', Id, true)] : []),
    ...(way === 'list' ? [parameter('query', 'after', Id, false)] : []),
    ...(isRead
      ? fields.map(([field, schema]) => parameter('query', field, schemaOf(schema), !isOptional(schema)))
      : []),
  ]
  const properties = Object.fromEntries(fields.map(([field, schema]) => [field, schemaOf(schema)]))
  const body = { type: 'object', properties, required, additionalProperties: false }
  return {
    operationId: name,
    tags: [noun.plural],
    summary: `${does[0].toUpperCase()}${does.slice(1)}`,
    description: `Role: ${role}.`,
    parameters,
    ...(!isRead && fields.length > 0 && { requestBody: { required: required.length > 0, ...json(body) } }),
    responses: {
      200: response('Result'),
      ...(!isRead && { 202: response('TaskStarted'), 204: response('Done') }),
      '4XX': response('Refused'),
    },
  }
}

const paths = {}
for (const operation of OPERATIONS) {
  const { method, path } = routeOf(operation)
  const url = `/api${path.replaceAll(/:(\w+)/g, '{$1}')}`
  paths[url] = { ...paths[url], [method.toLowerCase()]: operationOf(operation, method) }
}
const document = {
  openapi: '3.1.0',
  info: {
    title: 'oa-audience console',
    version: serviceVersion,
    description: DESCRIPTION,
    license: { name: 'MIT', identifier: 'MIT' },
  },
  servers: [{ url: '/' }],
  security: [{ session: [] }],
  paths,
  components: {
    schemas: { Error: ErrorEnvelopeSchema },
    responses: {
      Result: { description: 'The result.', ...json({}) },
      TaskStarted: {
        description: 'The work goes on as a job.',
        ...json({ type: 'object', properties: { job: { type: 'object' } }, required: ['job'] }),
      },
      Done: { description: 'Done; there is nothing to return.' },
      Refused: { description: 'Refused.', ...json({ $ref: '#/components/schemas/Error' }) },
    },
    securitySchemes: { session: { type: 'apiKey', in: 'cookie', name: 'oa-audience-console' } },
  },
}
mkdirSync(new URL('docs', build), { recursive: true })
writeFileSync(new URL('docs/console-openapi.json', build), `${JSON.stringify(document, null, 2)}\n`)
