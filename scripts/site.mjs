/**
 * Makes the documents a static site in site/ or the given directory, which needs no server: a page per Markdown file, the API reference, and a search over both.
 * Exits with 1 if a link of a document leads nowhere.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { Lexer, Marked, Parser } from 'marked'
import { pathOf } from './sources.mjs'

const SITE = process.argv[2] ?? pathOf('site')
const SWAGGER = 'node_modules/@fastify/swagger-ui/static'
const REFERENCE = 'docs/openapi.json'
const IMAGE = /\.(png|svg)$/
const FOLDERS = ['.', 'docs', 'docs/operate', 'bench', 'bench/soak', 'migrations', 'docs/decisions']

const read = (path) => readFileSync(pathOf(path), 'utf8')
const isHidden = ({ name }) => name.startsWith('.')
const escapeHtml = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`)

/** By the path of the Markdown file. */
const documents = new Map(
  FOLDERS.flatMap((folder) =>
    readdirSync(pathOf(folder))
      .filter((name) => name.endsWith('.md'))
      .sort()
      .map((name) => [posix.join(folder, name), parse(read(posix.join(folder, name)))]),
  ),
)
/** Other files that documents link, as pages of their text or as they are. */
const linked = new Set()
const faults = []

rmSync(SITE, { recursive: true, force: true })
for (const [path, { title, tokens }] of documents) write(path, title, render(path, tokens))
for (const path of linked) addLinked(path)
addReference()
for (const name of ['style.css', 'search.js']) cpSync(pathOf(`scripts/site/${name}`), join(SITE, name))
writeFileSync(
  join(SITE, 'index.js'),
  `globalThis.INDEX = ${JSON.stringify([...sections(), ...operations()])}\n`,
)
for (const fault of faults) console.error(fault)
if (faults.length > 0) process.exitCode = 1
else console.log(`site/index.html: ${documents.size} documents`)

/** The tokens of a document, and its headings with the anchors that code hosts give them. */
function parse(text) {
  const tokens = new Lexer().lex(text)
  const counts = new Map()
  for (const token of tokens.filter(({ type }) => type === 'heading')) {
    token.plain = plainOf(token.text)
    const slug = token.plain
      .toLowerCase()
      .replace(/[^\p{L}\p{M}\p{N}\p{Pc} -]/gu, '')
      .replaceAll(' ', '-')
    const count = counts.get(slug) ?? 0
    counts.set(slug, count + 1)
    token.id = count === 0 ? slug : `${slug}-${count}`
  }
  const headings = tokens.filter(({ type }) => type === 'heading')
  return { tokens, title: headings[0]?.plain, ids: new Set(headings.map(({ id }) => id)) }
}

function plainOf(text) {
  const withoutLinks = text.replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
  return withoutLinks
    .replace(/[`*]/g, '')
    .replace(/\|[-|]+\||[|\s]+/g, ' ')
    .trim()
}

function render(path, tokens) {
  const marked = new Marked({
    renderer: {
      heading({ tokens: inline, depth, id }) {
        return `<h${depth} id="${id}">${this.parser.parseInline(inline)}</h${depth}>\n`
      },
      link({ href, tokens: inline }) {
        return `<a href="${escapeHtml(addressOf(path, href))}">${this.parser.parseInline(inline)}</a>`
      },
      image({ href, text }) {
        return `<img src="${escapeHtml(addressOf(path, href))}" alt="${escapeHtml(text)}">`
      },
    },
  })
  return new Parser(marked.defaults)
    .parse(tokens)
    .replaceAll('<table>', '<div class="wide"><table>')
    .replaceAll('</table>', '</table></div>')
}

/** Where the page of `from` finds what the document links. */
function addressOf(from, href) {
  if (/^[a-z]+:/.test(href)) return href
  const [name, anchor] = href.split('#')
  const path = name === '' ? from : posix.join(dirname(from), name).replace(/\/$/, '')
  if (!existsSync(pathOf(path)) || (anchor !== undefined && !documents.get(path)?.ids.has(anchor)))
    faults.push(`${from}: ${href} leads nowhere`)
  else if (!documents.has(path)) linked.add(path)
  return `${posix.relative(dirname(from), pageOf(path))}${anchor === undefined ? '' : `#${anchor}`}`
}

function pageOf(path) {
  if (path === 'README.md') return 'index.html'
  if (IMAGE.test(path)) return path
  return path.endsWith('.md') ? path.replace(/md$/, 'html') : `${path}.html`
}

function addLinked(path) {
  if (path === REFERENCE) return
  if (IMAGE.test(path)) {
    mkdirSync(join(SITE, dirname(path)), { recursive: true })
    cpSync(pathOf(path), join(SITE, path))
  } else if (statSync(pathOf(path)).isDirectory()) {
    const names = readdirSync(pathOf(path), { withFileTypes: true }).filter((entry) => !isHidden(entry))
    const entries = names.map((entry) => {
      const inside = posix.join(path, entry.name)
      const label = documents.get(inside)?.title ?? entry.name
      return documents.has(inside)
        ? `<li><a href="${posix.relative(dirname(path), pageOf(inside))}">${escapeHtml(label)}</a></li>`
        : `<li>${escapeHtml(label)}</li>`
    })
    write(path, path, `<h1>${path}</h1><ul>${entries.join('')}</ul>`)
  } else write(path, path, `<h1>${path}</h1><pre>${escapeHtml(read(path))}</pre>`)
}

/** Swagger UI with the document inside a script, because a page of a file may not fetch another file. */
function addReference() {
  const root = posix.relative(dirname(REFERENCE), '.')
  for (const name of ['swagger-ui-bundle.js', 'swagger-ui.css'])
    cpSync(pathOf(`${SWAGGER}/${name}`), join(SITE, name))
  writeFileSync(join(SITE, 'openapi.js'), `globalThis.OPENAPI = ${read(REFERENCE)}`)
  const scripts = ['swagger-ui-bundle.js', 'openapi.js'].map(
    (name) => `<script src="${root}/${name}"></script>`,
  )
  const options = '{ dom_id: "#reference", spec: OPENAPI, deepLinking: true, supportedSubmitMethods: [] }'
  write(
    REFERENCE,
    'API reference',
    `<link rel="stylesheet" href="${root}/swagger-ui.css"><div id="reference"></div>
${scripts.join('')}<script>SwaggerUIBundle(${options})</script>`,
  )
}

function write(path, title, content) {
  const page = pageOf(path)
  const to = (target) => posix.relative(dirname(page), target)
  const item = (target, text) =>
    `<li><a href="${to(target)}"${target === page ? ' aria-current="page"' : ''}>${escapeHtml(text)}</a></li>`
  const groups = FOLDERS.map((folder) => {
    const items = [...documents]
      .filter(([each]) => dirname(each) === folder)
      .map(([each, { title }]) => item(pageOf(each), /^README\.(.+)\.md$/.exec(each)?.[1] ?? title))
    if (folder === 'docs') items.push(item(pageOf(REFERENCE), 'API reference'))
    const isOpen = folder === '.' || folder === 'docs' || dirname(path) === folder
    return `<details${isOpen ? ' open' : ''}><summary>${folder === '.' ? 'Project' : folder}</summary><ul>${items.join('')}</ul></details>`
  })
  mkdirSync(dirname(join(SITE, page)), { recursive: true })
  writeFileSync(
    join(SITE, page),
    `<!doctype html>
<html lang="${/README\.(\w+)/.exec(path)?.[1] ?? 'en'}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)} · oa-audience</title>
<link rel="stylesheet" href="${to('style.css')}">
<body data-root="${to('.') || '.'}">
<nav><input type="search" placeholder="Search" aria-label="Search the documents"><ol id="found"></ol>${groups.join('\n')}</nav>
<main>${content}</main>
<script src="${to('index.js')}"></script>
<script src="${to('search.js')}"></script>
</body>
</html>
`,
  )
}

/** One entry of the search for each heading with its text. */
function sections() {
  return [...documents].flatMap(([path, { title, tokens }]) => {
    const entries = []
    for (const token of tokens) {
      if (token.type === 'heading')
        entries.push({ page: `${pageOf(path)}#${token.id}`, title, heading: token.plain, text: '' })
      else if (entries.length > 0) entries.at(-1).text += `${plainOf(token.raw)} `
    }
    return entries
  })
}

function operations() {
  const { paths } = JSON.parse(read(REFERENCE))
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, { summary = '', description = '', tags = [], operationId = '' }]) => ({
        page: `${pageOf(REFERENCE)}#/${[tags[0] ?? 'default', operationId].map(encodeURIComponent).join('/')}`,
        title: 'API reference',
        heading: `${method.toUpperCase()} ${path}`,
        text: `${summary} ${description}`,
      }),
    ),
  )
}
