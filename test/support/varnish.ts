/** A Varnish with its default configuration, in front of one server. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../../tools/prove/service.ts'
import { eventually } from './process.ts'

const isInstalled = spawnSync('varnishd', ['-V']).status === 0

/** False without Varnish. The run then reports what it does not test. */
export function canRunVarnish(what: string): boolean {
  if (!isInstalled) console.warn(`\n!!! Varnish is not installed: ${what} is NOT tested\n`)
  return isInstalled
}

/** For `beforeAll`, which returns `stop`. @param backend host and port */
export async function startVarnish(backend: string) {
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-varnish-'))
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const options = ['-a', `127.0.0.1:${port}`, '-b', backend, '-n', directory]
  const varnish = spawn('varnishd', ['-F', '-j', 'none', '-s', 'malloc,16m', ...options], { stdio: 'ignore' })
  // It compiles its configuration first.
  await eventually(
    () => fetch(`${url}/api`),
    (answer) => answer instanceof Response,
  )
  const stop = () => {
    varnish.kill('SIGTERM')
    rmSync(directory, { recursive: true, force: true })
  }
  return { url, stop }
}
