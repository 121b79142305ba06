/** Removes the accounts of the tools, without a job and an entry in the activity log. */
import {
  BEGINNING,
  deleteNextRows,
  finishErasuresOf,
  type RemovalPosition,
  refuseRequests,
} from '../src/accounts/remove-account.ts'
import type { Database } from '../src/postgres/database.ts'

export async function removeAccount(database: Database, id: bigint): Promise<void> {
  await database.transaction((transaction) => refuseRequests(transaction, id))
  await finishErasuresOf(database, id)
  const deleteFrom = (position: RemovalPosition) =>
    database.transaction((transaction) => deleteNextRows(transaction, id, position))
  let { next } = await deleteFrom(BEGINNING)
  while (next !== null) ({ next } = await deleteFrom(next))
}
