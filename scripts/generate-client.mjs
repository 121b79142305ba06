/** Writes docs/openapi.json and the typed client examples/client.ts from the schemas: `npm run generate`. */
import { writeFileSync } from 'node:fs'
import { openApi } from '../dist/src/openapi.js'
import { serviceVersion } from '../dist/src/package.js'

const document = openApi(serviceVersion)
write('../docs/openapi.json', `${JSON.stringify(document, null, 2)}\n`)
write('../examples/client.ts', toClient(document))

function write(path, text) {
  writeFileSync(new URL(path, import.meta.url), text)
}

function toClient({ components, paths }) {
  const types = Object.entries(components.schemas).map(
    ([name, schema]) => `export type ${name === 'Error' ? 'ErrorEnvelope' : name} = ${toType(schema)}`,
  )
  const methods = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations)
      .filter(([, { security }]) => security !== undefined)
      .map(([method, operation]) => toMethod(method.toUpperCase(), path, operation)),
  )
  return `/** A typed client of oa-audience, generated from its OpenAPI document by \`npm run generate\`. Copy it. */

${types.join('\n\n')}

export interface Credentials {
  clientId: string
  clientSecret: string
  apiKey: string
}

/** An answer above 299, with what the service said. */
export class ApiError extends Error {
  readonly envelope: ErrorEnvelope

  constructor(envelope: ErrorEnvelope) {
    super(envelope.message)
    this.envelope = envelope
  }
}

export class AudienceClient {
  readonly #url: string
  readonly #headers: Record<string, string>

  constructor(url: string, { clientId, clientSecret, apiKey }: Credentials) {
    this.#url = url
    this.#headers = { 'x-client-id': clientId, 'x-client-secret': clientSecret, 'x-api-key': apiKey }
  }

${methods.join('\n\n')}

  async #call(method: string, path: string, query: object = {}, body?: unknown, headers: Record<string, string> = {}): Promise<unknown> {
    const parameters = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) {
      for (const each of [value].flat()) if (each !== undefined) parameters.append(name, String(each))
    }
    const response = await fetch(\`\${this.#url}\${path}?\${parameters}\`, {
      method,
      headers: { ...this.#headers, ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    const isJson = response.headers.get('content-type')?.includes('json') === true
    if (text !== '' && !isJson) throw new Error(\`\${response.status}, and not by the service: a proxy's?\`)
    const answer: unknown = text === '' ? undefined : JSON.parse(text)
    if (!response.ok) throw new ApiError(answer as ErrorEnvelope)
    return answer
  }
}
`
}

function toMethod(method, path, { operationId, summary, parameters = [], requestBody, responses }) {
  const inPath = parameters.filter((each) => each.in === 'path')
  const inQuery = parameters.filter((each) => each.in === 'query')
  const inHeader = parameters.filter((each) => each.in === 'header')
  const body = requestBody?.content['application/json'].schema
  const answer = responses[200]?.content['application/json'].schema
  const result = answer === undefined ? 'void' : toType(answer)
  const signature = [
    ...inPath.map(({ name }) => `${name}: string`),
    ...(inQuery.length > 0
      ? [`query: { ${inQuery.map(({ name, schema }) => `${name}?: ${toType(schema)}`).join('; ')} } = {}`]
      : []),
    ...(body === undefined ? [] : [`body${requestBody.required ? '' : '?'}: ${toType(body)}`]),
    ...inHeader.map(({ name }) => `${camel(name)}?: string`),
  ]
  const target = path.replaceAll(/\{(\w+)\}/g, (_, name) => `\${encodeURIComponent(${name})}`)
  const headers = inHeader.map(
    ({ name }) => `...(${camel(name)} === undefined ? {} : { '${name}': ${camel(name)} })`,
  )
  const values = [
    `'${method}'`,
    `\`${target}\``,
    inQuery.length > 0 ? 'query' : '{}',
    body === undefined ? 'undefined' : 'body',
    ...(headers.length > 0 ? [`{ ${headers.join(', ')} }`] : []),
  ]
  const call = `this.#call(${values.join(', ')})`
  return `  /** ${summary} */
  async ${operationId}(${signature.join(', ')}): Promise<${result}> {
    ${result === 'void' ? `await ${call}` : `return (await ${call}) as ${result}`}
  }`
}

function camel(name) {
  return name.replaceAll(/-(\w)/g, (_, letter) => letter.toUpperCase())
}

function toType(schema) {
  if (schema === undefined) return 'unknown'
  if (schema.$ref) {
    const name = schema.$ref.split('/').at(-1)
    return name === 'Error' ? 'ErrorEnvelope' : name
  }
  if (schema.anyOf) return schema.anyOf.map((each) => toType(each)).join(' | ')
  if ('const' in schema) return JSON.stringify(schema.const)
  switch (schema.type) {
    case 'string':
      return 'string'
    case 'integer':
    case 'number':
      return 'number'
    case 'boolean':
      return 'boolean'
    case 'null':
      return 'null'
    case 'array': {
      const item = toType(schema.items)
      return item.includes('|') ? `Array<${item}>` : `${item}[]`
    }
    case 'object': {
      if (schema.additionalProperties) return `Record<string, ${toType(schema.additionalProperties)}>`
      const required = new Set(schema.required ?? [])
      const fields = Object.entries(schema.properties ?? {}).map(
        ([name, each]) => `${name}${required.has(name) ? '' : '?'}: ${toType(each)}`,
      )
      return `{ ${fields.join('; ')} }`
    }
    default:
      return 'unknown'
  }
}
