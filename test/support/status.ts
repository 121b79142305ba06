/** What operators see of an account now. */
import { findFleetAccount } from '../../src/watch/fleet-facts.ts'
import { explainProblem } from '../../src/watch/languages.ts'
import { confirmStatus } from '../../src/watch/store-statuses.ts'
import type { TextDatabase } from '../../tools/text-database.ts'

export async function statusOf(database: TextDatabase, { accountId }: { accountId: bigint }) {
  await confirmStatus(database, accountId, Date.now())
  const account = await findFleetAccount(database, null, accountId)
  if (account === null) throw new Error('the account is not in the fleet')
  const { status, problems } = account
  const explained = problems.map((problem) => ({
    ...problem,
    ...explainProblem(accountId, problem, Date.now()),
  }))
  return { status, reasons: problems.map(({ reason }) => reason as string), account, explained }
}
