/** `oa-audience links`: links of posters and buttons that say where a follower came from. Nothing is stored. */
import { InvalidArgumentError } from 'commander'
import { type SourceLink, sourceLink } from '../audience/source-link.ts'
import { SOURCE_MAX_LENGTH } from '../config/limits.ts'
import { FatalError } from '../errors.ts'
import { type CliCommand, parseId, requireAccount } from './command.ts'
import { print, printError } from './io.ts'

interface Given extends SourceLink {
  account: bigint
}

export function linksCommand(program: CliCommand): void {
  program
    .command('links')
    .description('make links that say where a follower came from')
    .command('add')
    .description('print a link that names its source, and its QR code as SVG; nothing is stored')
    .requiredOption('--account <id>', 'id of the account', parseId)
    .requiredOption('--page <url>', 'LIFF URL, or another page that sends proven events')
    .requiredOption('--source <text>', 'what the link is on, such as qr-shop', parseValue)
    .option('--medium <text>', 'such as poster', parseValue)
    .option('--campaign <text>', 'such as autumn', parseValue)
    .onDatabase(
      async (database, { account, ...given }: Given) => {
        const made = sourceLink(given)
        if (made === null)
          throw new FatalError(
            '--page must be an https URL, such as https://liff.line.me/1234567890-AbcdEfgh',
          )
        const { id, loginChannelIds } = await requireAccount(database, account)
        if (loginChannelIds.length === 0)
          printError(
            `The account has no login channel, so no visit is proven. Run "oa-audience accounts update ${id} --login-channel-ids ID".`,
          )
        return made
      },
      ({ link, svg }) => {
        print(link)
        print(svg)
      },
    )
}

function parseValue(text: string): string {
  if (text !== '' && text.length <= SOURCE_MAX_LENGTH) return text
  throw new InvalidArgumentError(`Give 1 to ${SOURCE_MAX_LENGTH} characters.`)
}
