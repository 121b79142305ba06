/** The languages of the console. The English table defines the texts, and the other languages must have each of them. */
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { serverNowMs } from './clock.ts'
import { en } from './texts/en.ts'
import { ja } from './texts/ja.ts'
import { th } from './texts/th.ts'

export type Texts = typeof en

const LANGUAGES = { en, ja, th } satisfies Record<string, Texts>
export type Language = keyof typeof LANGUAGES

export const LANGUAGE_NAMES: Record<Language, string> = { en: 'English', ja: '日本語', th: 'ไทย' }

const STORAGE_KEY = 'oa-audience-language'

const isLanguage = (value: unknown): value is Language => Object.hasOwn(LANGUAGES, value as string)

/** Returns the stored choice, or else the first supported language of the browser. */
export function initialLanguage(): Language {
  const wanted = [localStorage.getItem(STORAGE_KEY), ...navigator.languages.map((tag) => tag.slice(0, 2))]
  return wanted.find(isLanguage) ?? 'en'
}

export function rememberLanguage(language: Language): void {
  localStorage.setItem(STORAGE_KEY, language)
}

export interface Localized {
  language: Language
  t: Texts
  /** `1,234` */
  number: (value: number) => string
  /** `1.2K`, for narrow cells */
  short: (value: number) => string
  /** `+12` */
  signed: (value: number) => string
  percent: (share: number) => string
  /** `3 minutes ago`, `in 2 days` */
  relative: (iso: string, now?: number) => string
  /** date and time in the zone of the browser */
  dateTime: (iso: string) => string
  /** the UTC date of the time, because a day of LINE has the same date in every time zone */
  date: (iso: string) => string
  clock: (iso: string) => string
}

const UNITS: Array<[Intl.RelativeTimeFormatUnit, number]> = [
  ['year', 365 * 86_400],
  ['month', 30 * 86_400],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
]

export function localize(language: Language): Localized {
  // Gregorian years and Western digits, as in the service's output. The default for Thai is Buddhist years.
  const locale = `${language}-u-ca-gregory-nu-latn`
  const number = new Intl.NumberFormat(locale)
  const short = new Intl.NumberFormat(locale, { notation: 'compact', maximumFractionDigits: 1 })
  const signed = new Intl.NumberFormat(locale, { signDisplay: 'exceptZero' })
  const percent = new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 0 })
  const relative = new Intl.RelativeTimeFormat(locale, { numeric: 'always', style: 'narrow' })
  const dateTime = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' })
  const date = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeZone: 'UTC' })
  const clock = new Intl.DateTimeFormat(locale, { timeStyle: 'medium' })
  return {
    language,
    t: LANGUAGES[language],
    number: (value) => number.format(value),
    short: (value) => short.format(value),
    signed: (value) => signed.format(value),
    percent: (share) => percent.format(share),
    relative: (iso, now = serverNowMs()) => {
      const seconds = (Date.parse(iso) - now) / 1000
      const [unit, size] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? ['second', 1]
      return relative.format(Math.trunc(seconds / size), unit)
    },
    dateTime: (iso) => dateTime.format(new Date(iso)),
    date: (iso) => date.format(new Date(iso)),
    clock: (iso) => clock.format(new Date(iso)),
  }
}

export const LocalizedContext = createContext<Localized>(localize('en'))
export const useLocalized = (): Localized => useContext(LocalizedContext)

/** Returns the text for a state. Other programs write other states, which are shown unchanged, even "constructor". */
export const stateIn = (texts: Record<string, string>, state: string): string =>
  Object.hasOwn(texts, state) ? (texts[state] ?? state) : state
