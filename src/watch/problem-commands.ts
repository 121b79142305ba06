/** Problems of accounts with the command that fixes them: in English on the command line, in the language of its channel in a message. */
import type { AccountId } from '../accounts/account.ts'
import { isStoredToken, type Problem } from './account-status.ts'
import { formatsIn, type Language, messagesIn, textsIn } from './problem-languages.ts'
import { describeProblem, type ExplainedProblem, fill } from './problem-texts.ts'

/** Without a command, for several accounts. */
export function explainForMany(problem: Problem, now: number, language: Language = 'en'): ExplainedProblem {
  return describeProblem(textsIn(language), problem, formatsIn(language, now))
}

export function explainProblem(
  id: AccountId,
  problem: Problem,
  now: number,
  language: Language = 'en',
): ExplainedProblem {
  const { message, fix } = explainForMany(problem, now, language)
  const command = commandFor(id, problem)
  const { muted } = problem
  const { run } = messagesIn(language)
  return {
    message: muted === undefined ? message : `${message} Muted until ${muted.until}: ${muted.reason}`,
    fix: command === null ? fix : fill(run, { fix, command }),
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
    case 'answered_elsewhere':
      return `oa-audience accounts verify ${id} --test-webhook`
    case 'redelivery_off':
      return `oa-audience accounts verify ${id} --prove-redelivery`
    case 'duplicate_bot':
      return `oa-audience accounts show ${facts.otherId}`
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
      return `oa-audience endpoints list --account ${id}; oa-audience endpoints retry ID`
    default:
      return null
  }
}
