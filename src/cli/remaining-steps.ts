/** What no API of LINE can change: the settings that an operator has to look at in LINE's consoles. */

import { print } from './io.ts'
import type { Outcome } from './onboard.ts'
import { styled } from './output.ts'

/** LINE's API neither changes nor shows these (developers.line.biz, "Build a bot" and "Receive messages"). */
const INVISIBLE_SETTINGS = [
  'LINE Developers Console, "Messaging API", "Webhook redelivery": switch it on. LINE then repeats deliveries that failed.',
  'LINE Developers Console, "Messaging API", "Auto-reply messages": disable them if a bot or a chat tool replies.',
  'LINE Developers Console, "Messaging API", "Allow bot to join group chats": enable it to receive events of groups.',
]

/** Prints nothing if the webhook was not asked for. */
export function printRemainingSteps(
  rows: Array<Pick<Outcome, 'webhookActive'> & { account: bigint }>,
  setsWebhook: boolean,
): void {
  if (!setsWebhook) return
  print(`\n${styled('bold', "Only LINE's own consoles can do the following:")}`)
  const inactive = rows.filter(({ webhookActive }) => webhookActive === false)
  if (inactive.length > 0) {
    const ids = inactive.map(({ account }) => account).join(', ')
    print(
      `  LINE Developers Console, "Messaging API", "Use webhook": switch it on for ${inactive.length} of ${rows.length} accounts: ${ids}`,
    )
  }
  print(`  For all accounts, because LINE's API does not show these settings:`)
  for (const setting of INVISIBLE_SETTINGS) print(`    ${setting}`)
}
