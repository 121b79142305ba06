/** Findings of `doctor` about the standbys of the database and the replicas that serve reads. */
import { BEHIND_MAX_BYTES, type Replication } from '../postgres/replication/replication.ts'
import type { Severity } from './endpoint-health.ts'

const ONE_DISK = 'an acknowledged event exists on one disk'
const MEBIBYTE = 1024 * 1024

/** @param replication null: no standby is expected */
export function examineReplication(replication: Replication | null): { severity: Severity; message: string } {
  if (replication === null) return { severity: 'ok', message: `no standby is configured: ${ONE_DISK}` }
  const { state, waits, standbys, behindBytes } = replication
  switch (state) {
    case 'synchronous':
      return { severity: 'ok', message: `commits wait for the disk of a standby; connected: ${standbys}` }
    case 'asynchronous':
      return {
        severity: 'warning',
        message: `commits do not wait for the disk of a standby, so ${ONE_DISK}; set synchronous_standby_names and synchronous_commit = on`,
      }
    case 'behind':
      return {
        severity: 'warning',
        message: `the standby lacks the last ${Math.round(behindBytes / MEBIBYTE)} MiB, and ${ONE_DISK}; check its disk and network`,
      }
    case 'missing':
      return waits
        ? {
            severity: 'error',
            message:
              'commits wait for a standby and none is connected, so nothing is stored; start a standby',
          }
        : { severity: 'warning', message: `no standby is connected, so ${ONE_DISK}; start a standby` }
    case 'unknown':
      return {
        severity: 'warning',
        message: 'the database user may not see the standbys; run `grant pg_monitor to …` as a superuser',
      }
  }
}

/** `behindBytes` is the WAL that the replica has not replayed; null: the replica cannot be read. */
export function examineReplica({ replica, behindBytes }: { replica: string; behindBytes: number | null }): {
  check: string
  severity: Severity
  message: string
} {
  const check = `replica ${replica}`
  if (behindBytes === null) {
    const message =
      'does not respond, is not a standby of the primary in DATABASE_URL (after a takeover: not yet), or is a pooler that does not keep sessions; the primary serves its reads; check DATABASE_READ_URL'
    return { check, severity: 'warning', message }
  }
  if (behindBytes <= BEHIND_MAX_BYTES) return { check, severity: 'ok', message: 'serves reads' }
  const message = `is ${Math.round(behindBytes / MEBIBYTE)} MiB behind, so the primary serves most of its reads; check its disk and network`
  return { check, severity: 'warning', message }
}
