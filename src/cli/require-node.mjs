/**
 * The first import of every program that a person starts. Without it, an older Node.js fails with a SyntaxError in a library.
 * It is JavaScript, because the scripts need it before anything is compiled. Node 12 can read it.
 */
import { createRequire } from 'node:module'

const { engines } = createRequire(import.meta.url)('#package.json')
const minimum = engines.node.replace('>=', '')
const [major, minor] = process.version.slice(1).split('.').map(Number)
const [minMajor, minMinor] = minimum.split('.').map(Number)

if (major < minMajor || (major === minMajor && minor < minMinor)) {
  console.error(
    `oa-audience: this is Node ${process.version}. Install Node ${minimum} or newer (https://nodejs.org).`,
  )
  process.exit(1)
}
