/** Links that say where a follower came from, for the command and the console. Nothing is stored. */
import { renderSVG } from 'uqr'

export interface SourceLink {
  /** https URL of a LIFF app, or of another page that sends proven events */
  page: string
  source: string
  medium?: string | undefined
  campaign?: string | undefined
}

/** Returns null if the page is not an https URL. */
export function sourceLink({ page, ...values }: SourceLink): { link: string; svg: string } | null {
  if (!URL.canParse(page) || new URL(page).protocol !== 'https:') return null
  const link = new URL(page)
  for (const [name, value] of Object.entries(values)) if (value) link.searchParams.set(`utm_${name}`, value)
  return { link: link.href, svg: renderSVG(link.href, { ecc: 'M' }) }
}
