/** A small file system in memory, which root can mount on Linux. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { atEnd } from './at-end.ts'

/** Null if it cannot be mounted. The run then reports what it does not test. @param size as mount has it, such as 4k */
export function mountDisk(size: string, untested: string): string | null {
  const disk = mkdtempSync(join(tmpdir(), 'oa-audience-disk-'))
  const args = ['-t', 'tmpfs', '-o', `size=${size},mode=755`, 'tmpfs', disk]
  const isMounted = spawnSync('mount', args).status === 0
  atEnd(() => {
    if (isMounted) spawnSync('umount', ['-l', disk])
    rmSync(disk, { recursive: true, force: true })
  })
  if (isMounted) return disk
  console.warn(`\n!!! no file system can be mounted here (it takes root on Linux): ${untested} NOT tested\n`)
  return null
}
