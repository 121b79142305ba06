/** Runs the workflows of examples/n8n: their connections, expressions and code, and the few nodes of n8n that they use. */
import { createHmac } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { IncomingHttpHeaders } from 'node:http'
import { Ajv } from 'ajv'
import { expect } from 'vitest'

/** As n8n hands data from node to node. */
export interface Item {
  json: Record<string, unknown>
  binary?: Record<string, { data: string }>
}

interface Node {
  name: string
  type: string
  onError?: string
  // biome-ignore lint/suspicious/noExplicitAny: each type of node has its own parameters
  parameters: Record<string, any>
}

interface Workflow {
  name: string
  nodes: Node[]
  connections: Record<string, { main: Array<Array<{ node: string }>> }>
}

/** What n8n requires of a file that it imports. */
const isWorkflow = new Ajv({ allowUnionTypes: true }).compile({
  type: 'object',
  required: ['name', 'nodes', 'connections'],
  additionalProperties: false,
  properties: {
    name: { type: 'string' },
    settings: { type: 'object' },
    nodes: {
      type: 'array',
      items: {
        type: 'object',
        required: ['id', 'name', 'type', 'typeVersion', 'position', 'parameters'],
        additionalProperties: false,
        properties: {
          ...{ id: { type: 'string' }, name: { type: 'string' }, webhookId: { type: 'string' } },
          ...{ type: { type: 'string', pattern: '^n8n-nodes-base\\.' }, typeVersion: { type: 'number' } },
          ...{ parameters: { type: 'object' }, onError: { const: 'continueRegularOutput' } },
          position: { type: 'array', items: { type: 'number' }, minItems: 2, maxItems: 2 },
        },
      },
    },
    connections: {
      type: 'object',
      additionalProperties: {
        type: 'object',
        required: ['main'],
        additionalProperties: false,
        properties: {
          main: {
            type: 'array',
            items: {
              type: 'array',
              items: {
                type: 'object',
                required: ['node', 'type', 'index'],
                properties: { node: { type: 'string' }, type: { const: 'main' }, index: { type: 'number' } },
              },
            },
          },
        },
      },
    },
  },
})

/** Throws if n8n could not import the file, or a node is connected to none that exists. */
export function readWorkflow(file: string): Workflow {
  const text = readFileSync(new URL(`../../examples/n8n/${file}`, import.meta.url), 'utf8')
  const workflow: Workflow = JSON.parse(text)
  expect(isWorkflow(workflow), JSON.stringify(isWorkflow.errors)).toBe(true)
  const names = workflow.nodes.map(({ name }) => name)
  expect(new Set(names).size).toBe(names.length)
  const connected = Object.entries(workflow.connections).flatMap(([from, { main }]) => [
    from,
    ...main.flat().map(({ node }) => node),
  ])
  expect(connected.filter((name) => !names.includes(name))).toEqual([])
  expect(names.filter((name) => !connected.includes(name))).toEqual([])
  return workflow
}

export const webhookItem = (headers: IncomingHttpHeaders, body: Buffer): Item => ({
  json: { headers, params: {}, query: {}, body: JSON.parse(body.toString()) },
  binary: { data: { data: body.toString('base64') } },
})

interface Surroundings {
  /** the values that somebody enters into nodes: the name of a node, then its parameters */
  entered?: Record<string, Record<string, unknown>>
  /** what the credential adds to each request */
  credential?: Record<string, string>
  /** the host of the service instead of that of the file */
  url?: string
}

interface Outcome {
  /** the status of the response to the webhook */
  status: number | null
  /** what each node returned */
  returned: Record<string, Item[]>
}

export async function runWorkflow(
  workflow: Workflow,
  start: Item,
  given: Surroundings = {},
): Promise<Outcome> {
  const outcome: Outcome = { status: null, returned: {} }
  const [first] = workflow.nodes
  const queue: Array<{ name: string; items: Item[] }> = [{ name: first?.name ?? '', items: [start] }]
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const { name, items } = next
    const node = workflow.nodes.find((each) => each.name === name) as Node
    const parameters = { ...node.parameters, ...given.entered?.[name] }
    const outputs = await runNode({ ...node, parameters }, items, outcome, given)
    outcome.returned[name] = outputs.flat()
    for (const [index, output] of outputs.entries())
      for (const { node: target } of workflow.connections[name]?.main[index] ?? [])
        if (output.length > 0) queue.push({ name: target, items: output })
  }
  return outcome
}

async function runNode(node: Node, items: Item[], outcome: Outcome, given: Surroundings): Promise<Item[][]> {
  const { parameters } = node
  switch (node.type) {
    case 'n8n-nodes-base.webhook':
      expect(parameters).toMatchObject({ httpMethod: 'POST', options: { rawBody: true } })
      return [items]
    case 'n8n-nodes-base.manualTrigger':
      return [items]
    case 'n8n-nodes-base.crypto':
      return [items.map((item) => withHmac(parameters, item))]
    case 'n8n-nodes-base.if': {
      const { leftValue, rightValue, operator } = parameters.conditions.conditions[0]
      expect(operator).toEqual({ type: 'string', operation: 'equals' })
      const isEqual = (item: Item) => evaluate(leftValue, item) === evaluate(rightValue, item)
      return [items.filter(isEqual), items.filter((item) => !isEqual(item))]
    }
    case 'n8n-nodes-base.respondToWebhook':
      outcome.status = parameters.options.responseCode
      return [items]
    case 'n8n-nodes-base.code': {
      const nodeOf = (name: string) => ({ first: () => outcome.returned[name]?.[0] })
      return [new Function('$input', '$', parameters.jsCode)({ first: () => items[0] }, nodeOf)]
    }
    case 'n8n-nodes-base.httpRequest': {
      const responses: Item[] = []
      for (const item of items) responses.push(await request(node, item, given))
      return [responses]
    }
  }
  throw new Error(`the node ${node.type} is unknown`)
}

/** The node removes the binary data. */
function withHmac(
  { action, type, secret, encoding, ...names }: Node['parameters'],
  { json, binary }: Item,
): Item {
  expect(action).toBe('hmac')
  const bytes = Buffer.from(binary?.[names.binaryPropertyName]?.data ?? '', 'base64')
  return {
    json: { ...json, [names.dataPropertyName]: createHmac(type, secret).update(bytes).digest(encoding) },
  }
}

/** A parameter that begins with = has expressions in {{ }}. One that is a single expression keeps its type. */
function evaluate(parameter: string, { json }: Item): unknown {
  if (!parameter.startsWith('=')) return parameter
  const result = (expression: string): unknown => new Function('$json', `return ${expression}`)(json)
  const single = /^=\{\{((?:(?!\}\}).)*)\}\}$/s.exec(parameter)?.[1]
  if (single !== undefined) return result(single)
  return parameter.slice(1).replaceAll(/\{\{(.*?)\}\}/gs, (_, expression) => String(result(expression)))
}

async function request({ parameters, onError }: Node, item: Item, given: Surroundings): Promise<Item> {
  const { method, authentication, genericAuthType, queryParameters, headerParameters, jsonBody, options } =
    parameters
  expect({ authentication, genericAuthType }).toEqual({
    authentication: 'genericCredentialType',
    genericAuthType: 'httpCustomAuth',
  })
  const valuesOf = (list?: { parameters: Array<{ name: string; value: string }> }) =>
    (list?.parameters ?? []).map(({ name, value }) => [name, String(evaluate(value, item))] as const)
  const url = new URL(String(evaluate(parameters.url, item)))
  const address = new URL(url.pathname, given.url)
  for (const [name, value] of valuesOf(queryParameters)) address.searchParams.set(name, value)
  const response = await fetch(address, {
    method,
    headers: {
      ...given.credential,
      ...Object.fromEntries(valuesOf(headerParameters)),
      ...(jsonBody && { 'content-type': 'application/json' }),
    },
    ...(jsonBody && { body: String(evaluate(jsonBody, item)) }),
  })
  const text = await response.text()
  if (!response.ok && onError === undefined) throw new Error(`${response.status}: ${text}`)
  const format = options.response?.response
  return {
    json: format?.responseFormat === 'text' ? { [format.outputPropertyName]: text } : JSON.parse(text),
  }
}
