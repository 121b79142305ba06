/** Servers of Debian's PostgreSQL, which can replicate and has pg_dump. The embedded one has neither. */
import { findDebianPostgres, ReplicatedPostgres } from '../../tools/simulator/replicated-postgres.ts'
import { atEnd } from './at-end.ts'
import { temporaryDirectory } from './process.ts'

/** The directory of its programs. */
export const DEBIAN_POSTGRES = findDebianPostgres()

/** False without it. The run then reports what it does not test. */
export function hasDebianPostgres(untested: string): boolean {
  if (DEBIAN_POSTGRES !== null) return true
  console.warn(
    `\n!!! Debian's PostgreSQL is not installed: ${untested} NOT tested (apt-get install postgresql)\n`,
  )
  return false
}

/** A primary and its standbys, which are stopped with their test. */
export async function startCluster(standbys = 0, settings = ''): Promise<ReplicatedPostgres> {
  const options = { standbys, settings }
  const cluster = await ReplicatedPostgres.start(DEBIAN_POSTGRES ?? '', temporaryDirectory(), options)
  atEnd(() => cluster.stop())
  return cluster
}
