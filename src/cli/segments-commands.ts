import { Argument, type Command } from 'commander'
import { countMatching } from '../audience/select-list.ts'
import { SYNC_TEXTS } from '../audience/sync-texts.ts'
import { scopeOfJob } from '../jobs/selection.ts'
import { SEGMENTS, type Segment } from '../operations/segments.ts'
import { onDatabase } from './input.ts'
import { printJson, printOne } from './io.ts'
import { addOperation, addOperations, performHere } from './operation-commands.ts'

export function segmentsCommand(program: Command): void {
  const group = program.command('segments').description('manage segments: named conditions on members')
  addOperations(group, Object.values(SEGMENTS))
  addOperation(group, SEGMENTS.show)
    .description('show a segment with the exact number of its members, which are counted now')
    .action(async (id: bigint, { json }: { json?: boolean }) => {
      const shown = await onDatabase(async (database) => {
        const { result } = await performHere(database, SEGMENTS.show, { id })
        const { organizationId, ...segment } = (result as { segment: Segment }).segment
        const scope = scopeOfJob({ accountId: segment.accountId, organizationId })
        const count = await countMatching(database, scope, { segment })
        return { ...segment, count, countedAt: new Date().toISOString() }
      })
      const condition = JSON.stringify(shown.condition)
      if (json) printJson(shown)
      else printOne({ ...shown, condition, syncText: SYNC_TEXTS[shown.syncState] }, false)
    })
  addOperation(group, SEGMENTS.sync)
    .description(
      'upload the followers in a segment to LINE as a new audience, once a day or now; off deletes the audiences',
    )
    .addArgument(new Argument('<mode>').choices(['on', 'off', 'now']))
    .action(async (id: bigint, mode: string, { json }: { json?: boolean }) => {
      const input = SEGMENTS.sync.check({ mode })
      await onDatabase((database) => performHere(database, SEGMENTS.sync, { id, input }))
      printOne({ id, sync: mode }, json === true)
    })
}
