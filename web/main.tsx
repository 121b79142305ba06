import { render } from 'preact'
import { App } from './app.tsx'
import { guardUnsent } from './router.tsx'
import './style/all.css'
import { loadLanguage } from './texts/languages.ts'
import { initialLanguage } from './texts.ts'

guardUnsent()

// Nothing is rendered before the language is loaded, so that no page shows English first. A top-level await would deadlock if a
// table's chunk imported this one.
void loadLanguage(initialLanguage())
  .catch(() => loadLanguage('en'))
  .then((localized) => render(<App initial={localized} />, document.getElementById('app') as HTMLElement))
