/** GET /openapi.json and GET /docs: what the service says of itself. Nothing on the page comes from another host. */
import type { FastifyInstance } from 'fastify'

interface Operation {
  summary: string
  description?: string
  security?: unknown[]
  parameters?: Array<{ name: string; in: string; description?: string; required?: boolean }>
  requestBody?: { content: Record<string, { example?: unknown }> }
  responses: Record<string, { description: string }>
}

const METHODS = ['get', 'post', 'put', 'delete']

export function documentRoutes(app: FastifyInstance, document: Record<string, unknown>): void {
  const text = JSON.stringify(document, null, 2)
  const page = toPage(document)
  app.get('/openapi.json', async (_, reply) => reply.type('application/json; charset=utf-8').send(text))
  app.get('/docs', async (_, reply) =>
    reply
      .header('content-security-policy', "default-src 'none'; style-src 'unsafe-inline'")
      .type('text/html; charset=utf-8')
      .send(page),
  )
}

function toPage(document: Record<string, unknown>): string {
  const { info, paths, components } = document as {
    info: { title: string; version: string; description: string }
    paths: Record<string, Record<string, Operation>>
    components: { schemas: Record<string, unknown> }
  }
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    METHODS.flatMap((method) => {
      const operation = methods[method]
      return operation === undefined ? [] : [toSection(method, path, operation)]
    }),
  )
  const schemas = Object.entries(components.schemas).map(
    ([name, schema]) =>
      `<details id="${name}"><summary>${name}</summary><pre>${pretty(schema)}</pre></details>`,
  )
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>${info.title} ${info.version}</title>
<meta name="viewport" content="width=device-width">
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h2{margin-top:2.5rem;font-size:1.1rem}code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{background:#f4f4f2;padding:.8rem;overflow:auto}b{display:inline-block;min-width:4.5rem;color:#06613f}
table{border-collapse:collapse}td{padding:.1rem 1rem .1rem 0;vertical-align:top}summary{cursor:pointer}
</style>
<h1>${info.title} ${info.version}</h1><p>${escapeHtml(info.description)} The document for programs: <a href="/openapi.json">/openapi.json</a>.</p>
${operations.join('\n')}
<h2>Schemas</h2>
${schemas.join('\n')}
</html>`
}

function toSection(method: string, path: string, operation: Operation): string {
  const { summary, description, security, parameters = [], requestBody, responses } = operation
  const rows = (list: Array<[string, string]>) =>
    `<table>${list.map(([name, words]) => `<tr><td><code>${escapeHtml(name)}</code><td>${escapeHtml(words)}`).join('')}</table>`
  const example = Object.values(requestBody?.content ?? {})[0]?.example
  const access = security === undefined ? '' : ' Needs x-client-id, x-client-secret and x-api-key.'
  return `<h2><b>${method.toUpperCase()}</b> <code>${escapeHtml(path)}</code></h2>
<p>${escapeHtml(summary)}. ${escapeHtml(description ?? '')}${access}</p>
${parameters.length > 0 ? rows(parameters.map(({ name, in: place, description: words = '' }) => [name, `${place}${words && `: ${words}`}`])) : ''}
${example === undefined ? '' : `<pre>${pretty(example)}</pre>`}
${rows(Object.entries(responses).map(([status, { description: words }]) => [status, words]))}`
}

function pretty(value: unknown): string {
  return escapeHtml(JSON.stringify(value, null, 2))
}

function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
