/**
 * Writes docs/images/demo.svg, an animation of what `npm run demo -- --once` prints: `node scripts/recording.mjs [file]`. The picture needs
 * no script and no font of its own.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const MAIN = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))
const [, , file = fileURLToPath(new URL('../docs/images/demo.svg', import.meta.url))] = process.argv

const COLUMNS = 104
const ROWS = 30
const LINE_PX = 18
const CHARACTER_PX = 8.4
/** Lines of one response that are shown. */
const ANSWER_ROWS = 9
const SECONDS_PER_STEP = 2.3
/** What each step prints first. */
const IS_TITLE = /^\d+\. |^Tools behind|^A CRM/

const DATA_DIR = mkdtempSync(join(tmpdir(), 'oa-audience-recording-'))
let output = ''
try {
  const env = { PATH: process.env.PATH, DATA_DIR, PORT: '0', NO_COLOR: '1' }
  output = execFileSync(process.execPath, [MAIN, 'demo', '--once'], { env, encoding: 'utf8' })
} finally {
  rmSync(DATA_DIR, { recursive: true, force: true })
}

const cut = (line) => (line.length > COLUMNS ? `${line.slice(0, COLUMNS - 1)}…` : line)
const classOf = (line) => {
  if (IS_TITLE.test(line)) return 'title'
  if (line.startsWith('curl ')) return 'call'
  return /^[23]\d\d /.test(line) ? 'good' : /^[45]\d\d /.test(line) ? 'refused' : 'text'
}

/** The lines of each step, without the end of a long response. */
const steps = [[{ text: '$ npm run demo -- --once', kind: 'title' }]]
for (const text of output.trim().split('\n')) {
  if (IS_TITLE.test(text)) steps.push([])
  const step = steps.at(-1)
  if (step.length < ANSWER_ROWS + 2) step.push({ text: cut(text), kind: classOf(text) })
  else step[ANSWER_ROWS + 2] = { text: '  …', kind: 'call' }
}

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
const lines = []
const frames = []
for (const step of steps) {
  for (const { text, kind } of step)
    lines.push(`<text y="${lines.length * LINE_PX}" class="${kind}">${escaped(text)}</text>`)
  // The step is at the bottom of the screen, and what follows it is hidden.
  frames.push({ top: Math.max(0, lines.length - ROWS), shown: lines.length })
}
const seconds = frames.length * SECONDS_PER_STEP
const at = (index) => ((100 * index) / frames.length).toFixed(2)
const rule = (name, value) => {
  const keys = frames.map((frame, index) => `${at(index)}% { ${value(frame)} }`)
  return `@keyframes ${name} { ${keys.join(' ')} 100% { ${value(frames.at(-1))} } }`
}
const [width, height] = [Math.ceil(COLUMNS * CHARACTER_PX) + 32, ROWS * LINE_PX + 32]
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="npm run demo: each step with its request and its response">
<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d4d4d4; white-space: pre; }
.title { fill: #4fc1ff; font-weight: bold; } .call { fill: #808080; } .good { fill: #7ec699; } .refused { fill: #e5c07b; }
${rule('scroll', ({ top }) => `transform: translateY(${-top * LINE_PX}px)`)}
${rule('reveal', ({ shown, top }) => `transform: translateY(${(shown - top) * LINE_PX}px)`)}
.lines { animation: scroll ${seconds}s step-end infinite; } .cover { animation: reveal ${seconds}s step-end infinite; }
@media (prefers-reduced-motion: reduce) { .lines, .cover { animation: none; } .cover { display: none; } }
</style>
<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>
<clipPath id="screen"><rect x="0" y="8" width="${width}" height="${height - 16}"/></clipPath>
<g clip-path="url(#screen)"><g transform="translate(16 28)"><g class="lines">
${lines.join('\n')}
</g></g>
<rect class="cover" y="14" width="${width}" height="${height}" fill="#1e1e1e"/></g>
</svg>
`
writeFileSync(file, svg)
console.log(
  `${file}: ${Math.round(svg.length / 1024)} KiB, ${frames.length} steps in ${Math.round(seconds)} s`,
)
