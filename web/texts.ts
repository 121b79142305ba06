/** The language of the page. texts/ has the tables. */
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import {
  english,
  isLanguage,
  type Language,
  type Localized,
  languageOf,
  localize,
} from './texts/languages.ts'

export { fill } from '../src/watch/problem-texts.ts'
export type { Texts } from './texts/languages.ts'

const STORAGE_KEY = 'oa-audience-language'

/** Returns the stored choice, or else the first supported language of the browser. */
export function initialLanguage(): Language {
  const stored = localStorage.getItem(STORAGE_KEY)
  return isLanguage(stored) ? stored : languageOf(navigator.languages)
}

export function rememberLanguage(language: Language): void {
  localStorage.setItem(STORAGE_KEY, language)
}

export const LocalizedContext = createContext<Localized>(localize('en', english))
export const useLocalized = (): Localized => useContext(LocalizedContext)

/** Returns the text for a state. Other programs write other states, which are shown unchanged, even "constructor". */
export const stateIn = (texts: Record<string, string>, state: string): string =>
  Object.hasOwn(texts, state) ? (texts[state] ?? state) : state
