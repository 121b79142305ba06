/** A tinyproxy of Debian with a password. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { eventually, temporaryDirectory } from './process.ts'

const isInstalled = spawnSync('tinyproxy', ['-v']).error === undefined

/** False without tinyproxy. The run then reports what it does not test. */
export function canRunTinyproxy(what: string): boolean {
  if (!isInstalled) console.warn(`\n!!! tinyproxy is not installed: ${what} is NOT tested\n`)
  return isInstalled
}

/** `connects` returns host and port of each CONNECT so far. */
export async function startTinyproxy() {
  const path = (name: string) => join(temporary, name)
  const temporary = temporaryDirectory()
  const port = await freePort()
  const settings = [
    ...[`Port ${port}`, 'Listen 127.0.0.1', 'MaxClients 50', 'BasicAuth user password'],
    ...[`LogFile "${path('log')}"`, 'LogLevel Connect', `PidFile "${path('pid')}"`],
  ]
  writeFileSync(path('conf'), settings.map((line) => `${line}\n`).join(''))
  const tinyproxy = spawn('tinyproxy', ['-d', '-c', path('conf')], { stdio: 'ignore' })
  onTestFinished(() => void tinyproxy.kill('SIGTERM'))
  const url = `http://user:password@127.0.0.1:${port}`
  await eventually(
    () => once(connect(port, '127.0.0.1').end(), 'connect'),
    (connected) => Array.isArray(connected),
  )
  const connects = () =>
    [...readFileSync(path('log'), 'utf8').matchAll(/CONNECT (\S+) HTTP/g)].map(([, target]) => target)
  return { url, connects }
}
