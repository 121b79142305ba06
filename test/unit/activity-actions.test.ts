/** Each action of the activity log has a sentence in every language. */
import { expect, it } from 'vitest'
import { ACTIONS } from '../../src/operators/activity.ts'
import { english, LANGUAGE_NAMES, type Language, loadLanguage } from '../../web/texts/languages.ts'

it.each(Object.keys(LANGUAGE_NAMES) as Language[])(
  'each action has a sentence with the same names in %s, and no sentence lacks its action',
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
