/** Encrypts the stored secrets under the first key of SECRETS_KEYS, or reports how they are encrypted. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Severity } from '../endpoints/endpoint-health.ts'
import { FatalError } from '../errors.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import { type Queryable, statement, type Transactions } from '../postgres/statement.ts'
import { changeSecrets } from '../secrets/change-secrets.ts'
import { examineSecrets, explainUnreadable } from '../secrets/examine-secrets.ts'

/** A pass skips locked rows. Changes of the service take milliseconds, so 20 × 0.5 s = 10 s are enough. */
const PASSES_MAX = 20
const PASS_PAUSE_MS = 500

/**
 * The service keeps working meanwhile. Throws a FatalError if no key is configured, or if rows stay locked.
 * @param onProgress receives the number of changed values so far
 * @returns the values that were encrypted, and those that no key reads and that stay as they are
 */
export async function rotateSecrets(
  database: Transactions,
  actor: Actor,
  onProgress: (values: number) => void = () => undefined,
  passPauseMs = PASS_PAUSE_MS,
): Promise<{ values: number; unreadable: number }> {
  const keyId = database.secretKeys.currentId
  if (keyId === null)
    throw new FatalError('SECRETS_KEYS is not set. Set it to the same value as for the service.')
  let values = 0
  let left = 0
  for (let pass = 1; pass <= PASSES_MAX; pass += 1) {
    const before = values
    const changed = await changeSecrets(database, 'selectPage', (done) => onProgress(before + done))
    values += changed.values
    left = changed.lockedRows + changed.refusedRows
    if (left === 0) break
    await sleep(passPauseMs)
  }
  const unreadable = (await examineSecrets(database)).unreadable.length
  await database.transaction((transaction) =>
    recordActivity(transaction, actor, {
      action: 'secrets.rotated',
      object: { kind: 'secrets', id: null },
      organizationId: null,
      changes: { values, unreadable, keyId },
    }),
  )
  if (left > 0)
    throw new FatalError(
      `${left} rows were not changed: another program has locked them, or PostgreSQL refuses the change. Run the command again.`,
    )
  return { values, unreadable }
}

/** For `doctor`. */
export async function examineEncryption(database: Queryable) {
  const { firstKeyId, counts, unreadable } = await examineSecrets(database)
  const check = 'secrets'
  const findings: Array<{ check: string; severity: Severity; message: string }> = []
  const countOf = (isCounted: (keyId: string | null) => boolean) =>
    counts.reduce((sum, { keyId, values }) => sum + (isCounted(keyId) ? values : 0), 0)
  const plain = countOf((keyId) => keyId === null)
  const old = countOf((keyId) => keyId !== null && keyId !== firstKeyId)
  if (unreadable.length > 0) {
    const message = `${explainUnreadable(unreadable.length, firstKeyId !== null)} The service does not start until then.`
    findings.push({ check, severity: 'error', message })
  }
  if (firstKeyId === null) {
    const message = `SECRETS_KEYS is not set, so ${plain} secrets are plain text in the database and its backups; see docs/operate/secrets.md`
    findings.push({ check, severity: 'ok', message })
  } else if (plain > 0) {
    const message = `${plain} secrets are plain text; the service encrypts them within a minute, if it runs with SECRETS_KEYS`
    findings.push({ check, severity: 'warning', message })
  }
  if (firstKeyId !== null && old > unreadable.length) {
    const message = 'some secrets are not encrypted under the first key; run oa-audience secrets rotate'
    findings.push({ check, severity: 'ok', message })
  }
  if (findings.length === 0)
    findings.push({ check, severity: 'ok', message: `all secrets are encrypted under the key ${firstKeyId}` })
  return findings
}

const countPlain = statement('count-plain-secrets')`
    select ((select count(*) from official_account where is_plain_secret(channel_secret)
                or is_plain_secret(channel_access_token) or is_plain_secret(chat_secret))
          + (select count(*) from endpoint where is_plain_secret(secret) or is_plain_secret(previous_secret))
          + (select count(*) from notification_channel where is_plain_secret(target) or is_plain_secret(secret)))::int as rows`

/** The number of rows with a secret in plain text. */
export async function countPlainRows(database: Queryable): Promise<number> {
  const [plain] = await database.query<{ rows: number }>(countPlain)
  return plain?.rows ?? 0
}
