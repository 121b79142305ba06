/** The services and their database: started, killed, and started again as a supervisor does. */
import { spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { findServer, sendSignal } from '../../dist/src/postgres/embedded/lock-file.js'
import { MAIN } from '../targets.mjs'

const START_LIMIT_MS = 60_000
const STOP_LIMIT_MS = 10_000
const POLL_MS = 100
/** A supervisor waits about this long before it starts a process again. */
const RESTART_PAUSE_MS = 1_000

/** One `oa-audience serve`, whose warnings and errors go to a file. */
export class Service {
  #env
  #logFile
  #child = null
  #isStopped = false

  constructor(name, port, env, directory) {
    this.name = name
    this.url = `http://127.0.0.1:${port}`
    this.#env = {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      PORT: String(port),
      LOG_LEVEL: 'warn',
      ...env,
    }
    this.#logFile = join(directory, `${name}.log`)
  }

  get pid() {
    return this.#child?.pid ?? null
  }

  /** Resolves when the service is healthy. */
  async start() {
    const log = openSync(this.#logFile, 'a')
    const child = spawn(process.execPath, ['--enable-source-maps', MAIN, 'serve'], {
      env: this.#env,
      stdio: ['ignore', log, log],
      // Ctrl-C reaches the whole process group, and the last check of the books needs the services.
      detached: true,
    })
    closeSync(log)
    this.#child = child
    // A service that ends by itself is started again, as by a supervisor, and its end is a fault that the log explains.
    child.once('exit', (code, signal) => {
      this.#child = null
      if (!this.#isStopped && signal !== 'SIGKILL') this.fault = `${this.name} exited with ${code ?? signal}`
    })
    await becomesHealthy(this.url, `${this.name} has not become healthy: see ${this.#logFile}`)
  }

  async killAndRestart() {
    const child = this.#child
    if (child !== null) {
      const exited = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGKILL')
      await exited
    }
    await sleep(RESTART_PAUSE_MS)
    await this.start()
  }

  /** For a program that ends without `stop`. */
  abandon() {
    this.#isStopped = true
    this.#child?.kill('SIGKILL')
  }

  async stop() {
    this.#isStopped = true
    const child = this.#child
    if (child === null) return
    const exited = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGTERM')
    const late = sleep(STOP_LIMIT_MS, 'late', { ref: false })
    if ((await Promise.race([exited, late])) === 'late') child.kill('SIGKILL')
  }
}

/** Throws an Error with the fault if it takes longer than START_LIMIT_MS. */
async function becomesHealthy(url, fault) {
  const deadline = Date.now() + START_LIMIT_MS
  while (!(await isHealthy(url))) {
    if (Date.now() > deadline) throw new Error(fault)
    await sleep(POLL_MS)
  }
}

async function isHealthy(url) {
  return fetch(`${url}/api/health`, { signal: AbortSignal.timeout(2_000) }).then(
    async (response) => {
      await response.arrayBuffer()
      return response.status === 200
    },
    () => false,
  )
}

/** Ends PostgreSQL as `pg_ctl stop -m immediate` does: without a checkpoint. Its owner starts it again, and it recovers from its WAL. */
export async function killPostgres(dataDirectory, services) {
  const directory = join(dataDirectory, 'postgres')
  const pid = findServer(directory)
  if (pid === null) return
  sendSignal(pid, 'SIGQUIT')
  while (findServer(directory) === pid) await sleep(POLL_MS)
  await Promise.all(
    services.map(({ url }) =>
      becomesHealthy(url, `${url} is not healthy ${START_LIMIT_MS / 1000} s after a crash of PostgreSQL`),
    ),
  )
}
