/** A web server of another origin than the service, with pages that use the browser libraries. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { build, type InlineConfig, type Rolldown } from 'vite'
import { SHOP_HOST } from './chromium.ts'

const EXAMPLE = fileURLToPath(new URL('../../examples/tracking', import.meta.url))
const LIBRARIES = {
  'segment.js': '@segment/analytics-next',
  'rudderstack.js': '@rudderstack/analytics-js/bundled',
  'jitsu.js': '@jitsu/js',
}

/** Files by path. The libraries are bundled as they are published; the example is built as its users build it. */
async function buildFiles(): Promise<Map<string, string>> {
  const libraries = await bundle({
    build: {
      rolldownOptions: {
        input: LIBRARIES,
        preserveEntrySignatures: 'strict',
        output: { entryFileNames: 'libraries/[name]', chunkFileNames: 'libraries/[name].js' },
      },
    },
  })
  const example = await bundle({ root: EXAMPLE, base: '/example/' })
  return new Map([...prefixed('/', libraries), ...prefixed('/example/', example)])
}

const prefixed = (prefix: string, files: Array<[string, string]>) =>
  files.map(([name, content]): [string, string] => [prefix + name, content])

async function bundle({ build: options, ...config }: InlineConfig): Promise<Array<[string, string]>> {
  const built = await build({
    configFile: false,
    publicDir: false,
    logLevel: 'warn',
    ...config,
    build: { write: false, ...options },
  })
  return (built as Rolldown.RolldownOutput).output.map((file) => [
    file.fileName,
    file.type === 'chunk' ? file.code : String(file.source),
  ])
}

export type Shop = Awaited<ReturnType<typeof openShop>>

export async function openShop() {
  const files = await buildFiles()
  files.set('/left.html', '<!doctype html><title>Left</title>')
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://shop')
    const content = files.get(pathname.endsWith('/') ? `${pathname}index.html` : pathname)
    const type = pathname.endsWith('.js') ? 'text/javascript' : 'text/html; charset=utf-8'
    response.writeHead(content === undefined ? 404 : 200, { 'content-type': type }).end(content)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = `http://${SHOP_HOST}:${(server.address() as AddressInfo).port}`
  /** Adds a page with a module script and a link that leaves it. Returns its URL. */
  const addPage = (script: string) => {
    const path = `/${files.size}.html`
    files.set(
      path,
      `<!doctype html><title>Shop</title><a href="/left.html">Leave</a><script type="module">${script}</script>`,
    )
    return url + path
  }
  const close = () => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  }
  return { url, addPage, close }
}
