/** `oa-audience report`: how many people followed and left, and where they came from. */
import { Option } from 'commander'
import { read } from '../operations/operation.ts'
import { REPORT } from '../operations/report.ts'
import { commandActor } from '../operators/actor.ts'
import { flatRows, type Report, reportCsv } from '../watch/report-rows.ts'
import type { CliCommand } from './command.ts'
import { io, print, printJson, printMany } from './io.ts'
import { commandServices, inputOf, optionsOf } from './operation-commands.ts'

const { show } = REPORT

export function reportCommand(program: CliCommand): void {
  const command = program
    .command('report')
    .description(
      'print how many people followed and left, beside the days before; docs/report.md defines each figure',
    )
  for (const option of optionsOf(show))
    command.addOption(option.conflicts(option.name() === 'account' ? 'organization' : []))
  command
    .addOption(new Option('--format <format>', 'output').choices(Object.keys(FORMATS)).default('table'))
    .onDatabase(
      async (database, { format: _, ...given }: { format: keyof typeof FORMATS }) => {
        const input = show.check(await inputOf(show, given))
        return read(show, { database, actor: commandActor(), services: commandServices(), input })
      },
      (report, [{ format }]) => FORMATS[format](report),
    )
}

const FORMATS = {
  table: printTable,
  csv: (report: Report) => void io.stdout.write(reportCsv(report)),
  json: printJson,
}

/** Without the figures that only charts need, and without most of the period before. */
function printTable(report: Report): void {
  printMany(
    flatRows(report).map((row) =>
      Object.fromEntries(
        Object.entries(row).filter(
          ([name]) => name !== 'lineNewFollowers' && !/^previous(?!NewFollowers|Net$)/.test(name),
        ),
      ),
    ),
  )
  print(report.completeFrom === null ? 'Nothing was counted yet.' : `Complete since ${report.completeFrom}.`)
}
