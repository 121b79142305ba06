/** Problems of accounts as the command line shows them: the English sentences, and the command that fixes the problem. */
import type { AccountId } from '../accounts/account.ts'
import { age } from '../http/format.ts'
import { isStoredToken, type Problem } from './account-status.ts'
import { describeProblem, type Formats, PROBLEM_TEXTS } from './problem-texts.ts'

export interface ExplainedProblem {
  message: string
  fix: string
}

/** Without a command, for several accounts. */
export function explainForMany(problem: Problem, now: number): ExplainedProblem {
  const [message, fix] = describeProblem(PROBLEM_TEXTS, problem, formatsAt(now))
  return { message, fix }
}

export function explainProblem(id: AccountId, problem: Problem, now: number): ExplainedProblem {
  const { message, fix } = explainForMany(problem, now)
  const command = commandFor(id, problem)
  return { message, fix: command === null ? fix : `${fix} Run ${command}` }
}

function formatsAt(now: number): Formats {
  return {
    number: String,
    relative: (iso) => {
      const seconds = (now - Date.parse(iso)) / 1000
      return seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`
    },
    date: (day) => day,
  }
}

function commandFor(id: AccountId, { reason, facts }: Problem): string | null {
  switch (reason) {
    case 'no_channel_secret':
    case 'line_signature_refused':
    case 'line_signature_doubtful':
      return `oa-audience accounts update ${id} --channel-secret -`
    case 'webhook_test_failed':
      return facts.check?.reason === 'test_signature_refused'
        ? `oa-audience accounts update ${id} --channel-secret -`
        : `oa-audience accounts verify ${id} --test-webhook`
    case 'token_refused':
      return isStoredToken(facts.check)
        ? `oa-audience accounts update ${id} --channel-access-token -`
        : `oa-audience accounts update ${id} --channel-id ID --channel-secret -`
    case 'other_account':
      return `oa-audience accounts update ${id} --channel-id ID --channel-secret -`
    case 'chat_signature_refused':
      return `oa-audience accounts update ${id} --chat-secret -`
    case 'token_expires':
      return `oa-audience accounts update ${id} --channel-access-token -`
    case 'not_verifiable': {
      const { hasChannelId, hasChannelSecret } = facts
      const options = `${hasChannelId ? '' : ' --channel-id ID'}${hasChannelSecret ? '' : ' --channel-secret -'}`
      return `oa-audience accounts update ${id}${options}`
    }
    case 'foreign_destination':
      return `oa-audience accounts verify ${id}`
    case 'never_delivered':
    case 'unusually_quiet':
    case 'silent_for_days':
      return `oa-audience accounts verify ${id} --test-webhook`
    case 'deliveries_failed':
    case 'platform_unreachable':
      return 'oa-audience doctor'
    case 'events_unapplied':
      return `oa-audience events list --status failed --account ${id}`
    case 'endpoint_failing':
      return `oa-audience endpoints pause ${facts.endpointId}`
    case 'endpoint_failed':
      return `oa-audience endpoints list --account ${id}, then oa-audience endpoints retry ID`
    default:
      return null
  }
}
