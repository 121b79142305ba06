/**
 * Restores a base backup into DATA_DIR/postgres. The server recovers in another directory, which is renamed after the restore is
 * recorded. So no service can start on an incomplete database.
 */
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { SecretKeys } from '../../config/secret-keys.ts'
import { FatalError } from '../../errors.ts'
import { findBinaries, giveToServer } from '../../postgres/embedded/cluster.ts'
import { waitUntilStopped } from '../../postgres/embedded/postmaster.ts'
import { withOpened } from '../../postgres/pool/open.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { copyFile, type OnBytes, syncDirectory } from './files.ts'
import { damaged, dataOf, type Manifest } from './manifest.ts'
import { type Restored, recordRestore } from './record-restore.ts'

/** One hour. Recovery replays the WAL of the backup, which takes about as long as the backup took. */
const RECOVERY_MAX_MS = 3_600_000

interface EmbeddedTarget {
  dataDir: string
  secretKeys?: SecretKeys
}

/** Throws a FatalError if the backup cannot be restored there. Writes nothing. */
export function requireRestorable({ dataDir }: EmbeddedTarget, { postgresMajor }: Manifest): void {
  if (existsSync(join(dataDir, 'postgres'))) {
    throw new FatalError(
      `${join(dataDir, 'postgres')} exists. Stop the service and move the directory away, or set DATA_DIR to another one.`,
    )
  }
  const { major } = findBinaries()
  if (major !== String(postgresMajor)) {
    throw new FatalError(
      `the backup is of PostgreSQL ${postgresMajor}, but this version of oa-audience runs PostgreSQL ${major}. ` +
        'Restore it with the version that made it, then follow "Upgrade the embedded PostgreSQL" in docs/operate/upgrade.md.',
    )
  }
}

export async function restoreServer(
  target: EmbeddedTarget,
  directory: string,
  manifest: Manifest,
  ledger: string | null,
  onBytes: OnBytes,
): Promise<Restored> {
  const { dataDir } = target
  mkdirSync(dataDir, { recursive: true })
  const staging = mkdtempSync(join(dataDir, 'restore-'))
  try {
    const server = join(staging, 'postgres')
    await copyData(dataOf(directory), server, manifest, onBytes)
    // The server of the staging directory runs as the user who owns it.
    giveToServer(dataDir, staging)
    const restored = await withOpened(
      { kind: 'embedded', ...target, dataDir: staging },
      migrate,
      (database) => recordRestore(database, manifest, ledger),
      RECOVERY_MAX_MS,
    )
    await waitUntilStopped(server)
    renameSync(server, join(dataDir, 'postgres'))
    await syncDirectory(dataDir)
    return restored
  } finally {
    rmSync(staging, { recursive: true, force: true })
  }
}

async function copyData(from: string, to: string, manifest: Manifest, onBytes: OnBytes): Promise<void> {
  mkdirSync(to, { mode: 0o700 })
  for (const path of manifest.directories) mkdirSync(join(to, path), { mode: 0o700 })
  for (const { path, sha256 } of manifest.files) {
    // Before a server recovers, it syncs every file of its data directory.
    const copied = await copyFile(join(from, path), join(to, path), false, onBytes)
    if (copied.sha256 !== sha256) throw damaged(join(from, path))
  }
}
