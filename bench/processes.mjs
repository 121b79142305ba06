/** Memory, file descriptors and processor time of processes, from /proc. Elsewhere, as on macOS, they are null. */
import { readdirSync, readFileSync } from 'node:fs'

/** Linux reports processor time in units of 10 ms on every common platform. */
const TICKS_PER_SECOND = 100
const MIB = 1024 * 1024

/**
 * @param {number | null} pid
 * @returns {{rssMiB: number, fds: number, cpuSeconds: number} | null} null if the process does not run
 */
export function readProcess(pid) {
  if (pid === null) return null
  try {
    return {
      rssMiB: readStatus(pid, 'VmRSS') / MIB,
      fds: readdirSync(`/proc/${pid}/fd`).length,
      cpuSeconds: readCpuSeconds(pid),
    }
  } catch {
    return null
  }
}

/**
 * The postmaster and its children together. `rssMiB` is their own memory, without the shared buffers, which each of them would
 * count again. The processor time of a child that has ended is part of its parent's.
 */
export function readPostgres(postmaster) {
  if (postmaster === null) return null
  try {
    const children = readFileSync(`/proc/${postmaster}/task/${postmaster}/children`, 'utf8')
    const pids = [postmaster, ...children.split(' ').filter(Boolean).map(Number)]
    const read = pids.map(readPrivate).filter((one) => one !== null)
    const sum = (field) => read.reduce((total, one) => total + one[field], 0)
    return { rssMiB: sum('rssMiB'), fds: sum('fds'), cpuSeconds: sum('cpuSeconds'), processes: read.length }
  } catch {
    return null
  }
}

/** A child may end meanwhile. */
function readPrivate(pid) {
  try {
    return {
      ...readProcess(pid),
      rssMiB: readStatus(pid, 'RssAnon') / MIB,
      cpuSeconds: readCpuSeconds(pid, true),
    }
  } catch {
    return null
  }
}

/** Microseconds of processor time of a process and its threads, more exact than readProcess. */
export function processorUs(pid) {
  const threads = readdirSync(`/proc/${pid}/task`).map((thread) => `/proc/${pid}/task/${thread}/schedstat`)
  return threads.reduce((sum, file) => sum + Number(readFileSync(file, 'utf8').split(' ')[0]) / 1000, 0)
}

/** Microseconds of processor time of all sessions of the database. Other work on the machine changes it less than the time on the clock. */
export async function sessionsUs(database) {
  const sessions = await database.query('select pid from pg_stat_activity where datname = current_database()')
  return sessions.reduce((sum, { pid }) => sum + processorUs(pid), 0)
}

export async function postmasterOf(database) {
  const [line] = await database.query(
    `select split_part(pg_read_file('postmaster.pid'), chr(10), 1)::int as pid`,
  )
  return line.pid
}

function readStatus(pid, name) {
  const line = readFileSync(`/proc/${pid}/status`, 'utf8').match(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm'))
  return Number(line[1]) * 1024
}

function readCpuSeconds(pid, withEndedChildren = false) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  // The second field is the name, which may contain blanks. After it, utime is the 12th field.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = fields.slice(11, withEndedChildren ? 15 : 13).map(Number)
  return ticks.reduce((sum, tick) => sum + tick, 0) / TICKS_PER_SECOND
}
