/** Encrypts the stored secrets under the first key of SECRETS_KEYS, or reports how they are encrypted. */
import { FatalError, type Finding, finding } from '../errors.ts'
import { counted } from '../observability/one-line.ts'
import { recordActivity } from '../operators/activity.ts'
import type { Actor } from '../operators/actor.ts'
import type { Queryable, Transactions } from '../postgres/statement.ts'
import { changeSecrets, examineSecrets, explainUnreadable } from './stored-secrets.ts'

/** Returns the number of values that were encrypted, and of those that no key reads. */
export async function rotateSecrets(
  database: Transactions,
  actor: Actor,
  onProgress: (values: number) => void = () => undefined,
): Promise<{ values: number; unreadable: number }> {
  const keyId = database.secretKeys.currentId
  if (keyId === null)
    throw new FatalError('SECRETS_KEYS is not set. Set it to the same value as for the service.')
  const { values, unchangedRows } = await changeSecrets(database, false, onProgress)
  const unreadable = (await examineSecrets(database)).unreadable.length
  await database.transaction((transaction) =>
    recordActivity(transaction, actor, {
      action: 'secrets.rotated',
      object: { kind: 'secrets', id: null },
      organizationId: null,
      changes: { values, unreadable, keyId },
    }),
  )
  if (unchangedRows > 0)
    throw new FatalError(
      `${counted(unchangedRows, 'row')} not changed: another program has locked them, or PostgreSQL refuses the change. Run the command again.`,
    )
  return { values, unreadable }
}

/** For `doctor`. */
export async function examineEncryption(database: Queryable): Promise<Finding[]> {
  const { firstKeyId, counts, unreadable } = await examineSecrets(database)
  const check = 'secrets'
  const findings: Finding[] = []
  const countOf = (isCounted: (keyId: string | null) => boolean) =>
    counts.reduce((sum, { keyId, values }) => sum + (isCounted(keyId) ? values : 0), 0)
  const plain = countOf((keyId) => keyId === null)
  const old = countOf((keyId) => keyId !== null && keyId !== firstKeyId)
  if (unreadable.length > 0) {
    const message = `${explainUnreadable(unreadable.length, firstKeyId !== null)} The service does not start until then.`
    findings.push(finding.error(check, message))
  }
  if (firstKeyId === null) {
    const message = `SECRETS_KEYS is not set, so secrets are plain text in the database and its backups; see docs/operate/secrets.md`
    findings.push(finding.ok(check, message))
  } else if (plain > 0) {
    const message = `${counted(plain, 'secret')} in plain text; the service encrypts them within a minute, if it runs with SECRETS_KEYS`
    findings.push(finding.warning(check, message))
  }
  if (firstKeyId !== null && old > unreadable.length)
    findings.push(
      finding.ok(check, 'some secrets are not encrypted under the first key; run oa-audience secrets rotate'),
    )
  if (findings.length === 0)
    findings.push(finding.ok(check, `all secrets are encrypted under the key ${firstKeyId}`))
  return findings
}
