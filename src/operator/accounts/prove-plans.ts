/** Proves the channel secrets of a fleet file before it is stored. */
import type { LineApi } from '../../line-api/client.ts'
import { type FileFault, type Plan, throwFaults } from './apply-accounts.ts'
import { askLine, REFUSED } from './channels.ts'

/** LINE allows 2,000 a second. */
const PROOFS_AT_ONCE = 20
/** 10,000 × 0.1 s ÷ 20 = 50 s. With a last call of 6 s, a console's request ends before a proxy gives up after 60 s. */
const PROOFS_MAX_MS = 50_000

/**
 * Asks LINE about the channels of a fleet file whose secrets are new. Throws a RefusedFile with the lines that LINE refuses. When LINE does
 * not respond once, or the time is over, it is not asked about the remaining lines.
 * @returns the number of lines that are not proven
 */
export async function provePlans(lineApi: LineApi, plans: Plan[]): Promise<number> {
  const asked = plans.filter(({ changes, columns }) => 'channelSecret' in changes && columns.channel_secret)
  const endMs = Date.now() + PROOFS_MAX_MS
  const faults: FileFault[] = []
  const remaining = asked.values()
  let proven = 0
  let isResponding = true
  const worker = async () => {
    for (const { line, channelId, columns } of remaining) {
      if (!isResponding || Date.now() > endMs) return
      const proof = await askLine(lineApi, { ...columns, channel_id: channelId })
      if (proof === 'refused') faults.push({ line, column: 'channel_secret', message: REFUSED })
      if (proof === 'unproven') isResponding = false
      if (proof === 'proven') proven += 1
    }
  }
  await Promise.all(Array.from({ length: PROOFS_AT_ONCE }, worker))
  throwFaults(faults.sort((a, b) => a.line - b.line))
  return asked.length - proven
}
