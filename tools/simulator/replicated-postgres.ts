/** A PostgreSQL primary with standbys on one machine, made of Debian's package: for tests and benchmarks of replication. */
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { environmentOfPrograms } from '../../src/config/config.ts'
import { freePort } from '../prove/service.ts'

/** Where Debian installs PostgreSQL. The npm package has no pg_basebackup. */
const DEBIAN = '/usr/lib/postgresql'
const OLDEST_MAJOR = 14
/** PostgreSQL refuses to run as root. */
const NOBODY = 65_534
const READY_TIMEOUT_MS = 60_000
const POLL_MS = 20

const SETTINGS = `
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = 32MB
wal_keep_size = 256MB
`

/** The directory of the newest PostgreSQL that Debian has installed, or null. */
export function findDebianPostgres(): string | null {
  const majors = existsSync(DEBIAN) ? readdirSync(DEBIAN).map(Number) : []
  const [newest] = majors.filter((major) => major >= OLDEST_MAJOR).toSorted((a, b) => b - a)
  return newest === undefined ? null : join(DEBIAN, String(newest), 'bin')
}

/** One server of the cluster. */
export class PostgresServer {
  readonly port: number
  readonly #tools: string
  readonly #directory: string
  #process: ChildProcess | null = null

  constructor(tools: string, directory: string, port: number) {
    this.#tools = tools
    this.#directory = directory
    this.port = port
  }

  /** @param settings lines of postgresql.conf, which standbys inherit */
  async create(settings: string): Promise<void> {
    this.#makeDirectory()
    await this.#run('initdb', [
      '-D',
      this.#directory,
      '-U',
      'postgres',
      '-A',
      'trust',
      '-E',
      'UTF8',
      '--locale=C',
    ])
    const own = `unix_socket_directories = ''\n${SETTINGS}${settings}\n`
    writeFileSync(join(this.#directory, 'postgresql.conf'), own)
  }

  /** Copies the primary, and follows it once it runs. Replaces what the directory holds. */
  async copy(primary: PostgresServer): Promise<void> {
    rmSync(this.#directory, { recursive: true, force: true })
    this.#makeDirectory()
    const from = ['-h', '127.0.0.1', '-p', String(primary.port), '-U', 'postgres']
    await this.#run('pg_basebackup', [...from, '-D', this.#directory, '-R', '-c', 'fast'])
  }

  async start(): Promise<void> {
    const child = spawn(join(this.#tools, 'postgres'), ['-D', this.#directory, '-p', String(this.port)], {
      ...asOwner(),
      stdio: 'ignore',
    })
    this.#process = child
    for (const deadline = Date.now() + READY_TIMEOUT_MS; Date.now() < deadline; await sleep(POLL_MS)) {
      if (child.exitCode !== null) throw new Error('PostgreSQL has exited')
      const isReady = await this.#run('pg_isready', ['-h', '127.0.0.1', '-p', String(this.port)]).then(
        () => true,
        () => false,
      )
      if (isReady) return
    }
    throw new Error('PostgreSQL does not start')
  }

  /** Runs a statement and returns its one value as text. */
  async ask(sql: string, database = 'postgres'): Promise<string> {
    const to = ['-h', '127.0.0.1', '-p', String(this.port), '-U', 'postgres', '-d', database]
    return (await this.#run('psql', [...to, '-X', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-c', sql])).trim()
  }

  async promote(): Promise<void> {
    await this.#run('pg_ctl', ['promote', '-w', '-D', this.#directory])
  }

  follow(primary: PostgresServer): Promise<void> {
    return this.#receiveFrom(`host=127.0.0.1 port=${primary.port} user=postgres`)
  }

  /** Resolves when the standby receives nothing more. */
  async detach(): Promise<void> {
    await this.#receiveFrom('')
    while ((await this.ask('select count(*) from pg_stat_wal_receiver')) !== '0') await sleep(POLL_MS)
  }

  async #receiveFrom(address: string): Promise<void> {
    await this.ask(`alter system set primary_conninfo = '${address}'`)
    await this.ask('select pg_reload_conf()')
  }

  /** Like a machine that loses its power. */
  async kill(): Promise<void> {
    const exited = new Promise((resolve) => this.#process?.once('exit', resolve))
    const isRunning = this.#process !== null && this.#process.exitCode === null && !this.#process.signalCode
    for (const pid of this.#pids()) signal(pid, 'SIGKILL')
    if (isRunning) await exited
    this.#process = null
  }

  /** Like a machine that hangs: connections stay open and new ones are accepted by the kernel alone. */
  freeze(): void {
    for (const pid of this.#pids()) signal(pid, 'SIGSTOP')
  }

  thaw(): void {
    for (const pid of this.#pids()) signal(pid, 'SIGCONT')
  }

  /** The postmaster, then its children, each of which has a process group of its own. */
  #pids(): number[] {
    const pid = this.#process?.pid
    if (pid === undefined) return []
    const { stdout } = spawnSync('ps', ['-o', 'pid=', '--ppid', String(pid)], { encoding: 'utf8' })
    return [pid, ...stdout.split('\n').filter(Boolean).map(Number)]
  }

  #makeDirectory(): void {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 })
    chmodSync(this.#directory, 0o700)
    if (isRoot()) chownSync(this.#directory, NOBODY, NOBODY)
  }

  async #run(tool: string, args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(join(this.#tools, tool), args, asOwner())
    return stdout
  }
}

const isRoot = () => process.getuid?.() === 0

function asOwner() {
  const env = environmentOfPrograms()
  // nobody may not enter root's directories.
  return isRoot() ? { uid: NOBODY, gid: NOBODY, cwd: '/', env } : { cwd: '/', env }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // It has exited meanwhile.
  }
}

/** A primary and its standbys, all of which accept local connections without a password. */
export class ReplicatedPostgres {
  readonly servers: PostgresServer[]
  readonly #settings: string
  #primary: PostgresServer

  private constructor(servers: PostgresServer[], settings: string) {
    this.servers = servers
    this.#primary = servers[0] as PostgresServer
    this.#settings = settings
  }

  /** @param directory every user must be able to enter its parents */
  static async start(
    tools: string,
    directory: string,
    { standbys, settings }: { standbys: number; settings: string },
  ): Promise<ReplicatedPostgres> {
    mkdirSync(directory, { recursive: true })
    chmodSync(directory, 0o755)
    const servers: PostgresServer[] = []
    for (let no = 0; no <= standbys; no += 1) {
      servers.push(new PostgresServer(tools, join(directory, `server${no}`), await freePort()))
    }
    const cluster = new ReplicatedPostgres(servers, settings)
    await cluster.#create()
    return cluster
  }

  get primary(): PostgresServer {
    return this.#primary
  }

  get standbys(): PostgresServer[] {
    return this.servers.filter((server) => server !== this.#primary)
  }

  /** As DATABASE_URL takes it. */
  get url(): string {
    const hosts = this.servers.map(({ port }) => `127.0.0.1:${port}`).join(',')
    return `postgres://postgres@${hosts}/postgres?target_session_attrs=read-write`
  }

  /**
   * Promotes the standby that has received the most, and lets the others follow it. With `ANY 1`, an acknowledged commit is on
   * one of them at least, so no other may be promoted. The former primary is left as it is: it may still run, so all standbys
   * leave it first. Otherwise it could acknowledge a commit that only the other standby receives.
   */
  async failOver(): Promise<PostgresServer> {
    const former = this.#primary
    await Promise.all(this.standbys.map((standby) => standby.detach()))
    const received = async (server: PostgresServer) => ({
      server,
      position: Number(await server.ask(`select pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')`)),
    })
    const standbys = await Promise.all(this.standbys.map(received))
    const [next, ...others] = standbys.toSorted((a, b) => b.position - a.position)
    if (next === undefined) throw new Error('there is no standby')
    await next.server.promote()
    this.#primary = next.server
    for (const { server } of others) await server.follow(next.server)
    return former
  }

  /** Makes a former primary a standby of the present one. */
  async rebuild(server: PostgresServer): Promise<void> {
    await server.kill()
    await server.copy(this.#primary)
    await server.start()
  }

  async stop(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.kill()))
  }

  async #create(): Promise<void> {
    await this.#primary.create(this.#settings)
    await this.#primary.start()
    for (const standby of this.standbys) {
      await standby.copy(this.#primary)
      await standby.start()
    }
  }
}
