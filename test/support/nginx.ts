/** nginx with a configuration of deploy/. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { eventually } from './process.ts'

const isInstalled = spawnSync('nginx', ['-v']).status === 0
const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']

/** False without nginx. The run then reports which configuration it does not test. */
export function canRunNginx(configuration: string): boolean {
  if (!isInstalled) console.warn(`\n!!! nginx is not installed: deploy/${configuration} is NOT tested\n`)
  return isInstalled
}

/** Starts nginx on a free port. For `beforeAll`, which returns `stop`. @param hosts what replaces the hosts of the configuration */
export async function startNginx(configuration: string, hosts: Record<string, string>) {
  const port = await freePort()
  let text = readFileSync(new URL(`../../deploy/${configuration}`, import.meta.url), 'utf8')
  for (const [host, replacement] of Object.entries(hosts)) text = text.replaceAll(host, replacement)
  const url = `http://127.0.0.1:${port}`
  return { url, stop: await runNginx(text.replace('listen 80;', `listen 127.0.0.1:${port};`), url) }
}

/** Starts nginx, which then responds at this URL. Returns what stops it. */
export async function runNginx(text: string, url: string): Promise<() => void> {
  const directory = mkdtempSync(join(tmpdir(), 'oa-audience-nginx-'))
  const paths = TEMPORARY.map((name) => `${name}_temp_path ${name};`).join(' ')
  const configuration = text.replace('http {', `http { access_log off; ${paths}`)
  writeFileSync(join(directory, 'nginx.conf'), `pid nginx.pid; user root; ${configuration}`)
  const options = ['-p', directory, '-c', 'nginx.conf', '-e', 'error.log']
  expect(spawnSync('nginx', ['-t', ...options], { encoding: 'utf8' })).toMatchObject({ status: 0 })
  const nginx = spawn('nginx', [...options, '-g', 'daemon off;'], { stdio: 'inherit' })
  await eventually(
    () => fetch(url),
    (answer) => answer instanceof Response,
  )
  return () => {
    nginx.kill('SIGTERM')
    rmSync(directory, { recursive: true, force: true })
  }
}
