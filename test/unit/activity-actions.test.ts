/** The closed list of actions in the activity log: each is recorded somewhere and has a text in every language. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { ACTIONS } from '../../src/operators/activity.ts'
import { english, LANGUAGE_NAMES, type Language, loadLanguage } from '../../web/texts/languages.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Code without comments, and without the list itself. */
const CODE = ['src', 'migrations'].flatMap((directory) =>
  readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|sql)$/.test(name) && name !== 'operators/activity.ts')
    .map((name) => readFileSync(join(ROOT, directory, name), 'utf8'))
    .map((text) => text.replaceAll(/\/\*[\s\S]*?\*\/|^\s*(\/\/|--).*$/gm, '')),
)

/** Files whose functions put the kind before the rest of the action, without the type of that rest. */
const filesWith = (call: string) =>
  CODE.filter((text) => text.includes(call)).map((text) => text.replaceAll(/'\w+'( \| '\w+')+/g, ''))
const PREFIXED: Record<string, string[]> = {
  account: filesWith('recordAccount('),
  organization: filesWith('`organization.${'),
}

function isRecorded(action: string): boolean {
  if (CODE.some((text) => text.includes(`'${action}'`))) return true
  const [kind = '', rest] = action.split('.')
  return PREFIXED[kind]?.some((text) => text.includes(`'${rest}'`)) ?? false
}

describe('an action of the activity log', () => {
  it.each(ACTIONS)('%s is recorded by the service', (action) => {
    expect(isRecorded(action)).toBe(true)
  })

  it('that nothing records is found by this test', () => {
    expect(['endpoint.unknown', 'account.exported', 'member.added'].filter(isRecorded)).toEqual([])
  })

  it.each(Object.keys(LANGUAGE_NAMES) as Language[])(
    'has a sentence with the same names in %s, and no sentence lacks its action',
    async (language) => {
      const { t: texts } = await loadLanguage(language)
      expect(Object.keys(texts.activity.actions).toSorted()).toEqual(ACTIONS.toSorted())
      const namesIn = (text: string) => text.match(/\[|\{\w+\}/g)?.toSorted()
      for (const action of ACTIONS)
        expect([action, namesIn(texts.activity.actions[action])]).toEqual([
          action,
          namesIn(english.activity.actions[action]),
        ])
    },
  )
})
