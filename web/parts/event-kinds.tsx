/** Which kinds of events an endpoint receives, as check boxes with words and the technical names beside them. */
import type { EndpointFormat } from '../../src/endpoints/event-types.ts'
import { stateIn, useLocalized } from '../texts.ts'
import { listOf, Problems, useProblems } from './form.tsx'

/** LINE sends these only of groups, or only to module channels. */
const RARE: Record<string, 'groups' | 'modules'> = {
  ...{ join: 'groups', leave: 'groups', memberJoined: 'groups', memberLeft: 'groups' },
  ...{
    activated: 'modules',
    deactivated: 'modules',
    botSuspended: 'modules',
    botResumed: 'modules',
    module: 'modules',
  },
}

/** The words of a kind, such as `follow` or `member.created`. One without words is shown as it is. */
export function useKindText() {
  const { t } = useLocalized()
  const texts: Record<string, string> = { ...t.eventKinds.line, ...t.eventKinds.members }
  return (kind: string | null) => kind && stateIn(texts, kind)
}

/** @param value separated by commas; empty: all */
export function EventKinds({
  name,
  value,
  onChange,
  format,
}: {
  name: string
  value: string
  onChange: (value: string) => void
  format: EndpointFormat
}) {
  const { t } = useLocalized()
  const problems = useProblems(name)
  const texts: Record<string, string> = t.eventKinds[format]
  const chosen = listOf(value)
  // Other programs may store kinds that do not exist.
  const kinds = [...new Set([...Object.keys(texts), ...(chosen ?? [])])]
  const toggle = (kind: string) => {
    const others = (chosen ?? []).filter((each) => each !== kind)
    onChange((chosen?.includes(kind) ? others : [...others, kind]).join(', '))
  }
  return (
    <fieldset class="kinds">
      <legend>{t.endpoints.events}</legend>
      <p class="muted">{t.endpoints.eventsHint}</p>
      <label>
        <input
          type="checkbox"
          checked={chosen === null}
          onChange={() => onChange(chosen === null ? (kinds[0] ?? '') : '')}
        />
        {t.eventKinds.all}
      </label>
      {chosen !== null && (
        <div class="kind-list">
          {kinds.map((kind) => (
            <label key={kind}>
              <input
                type="checkbox"
                checked={chosen.includes(kind)}
                // Without the last one, the list would be empty, which means all kinds.
                disabled={chosen.length === 1 && chosen[0] === kind}
                onChange={() => toggle(kind)}
              />
              <span>
                {texts[kind] ?? kind} <code>{kind}</code>{' '}
                {RARE[kind] && format === 'line' && (
                  <span class="muted small-text">{t.eventKinds[RARE[kind]]}</span>
                )}
              </span>
            </label>
          ))}
        </div>
      )}
      <Problems of={problems} role="alert" />
    </fieldset>
  )
}
