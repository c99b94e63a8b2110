// The visitor: who they are, if they say so, and what they may ask about themselves.
'use strict';

// me is who the visitor is.
const me = stored('me');

// you returns the cards of the visitor, or a form for their account.
function you(signal) {
  const x = me.get(), notes = [];
  if (!x) {
    return subjectForm('You: enter your account, and the cards are about you. Only this browser remembers it.', '', () => 'account', who => {
      me.set(who);
      return {q: ''};
    });
  }
  const cards = [['You', x], ['Your circle', between(x)], ['Who follows you back', `mutuals(${x})`], ['Who does not follow you back', `except(follows(${x}), followers(${x}))`], ['Followers that you do not follow', `except(followers(${x}), follows(${x}))`],
    ['What those you follow like today', rankText({of: `follows(${x})`, via: 'likes', since: '24h', except: `likes(${x})`})], ['Accounts like yours', alike(x)], ['Your new followers this week', `followers(${x}, since=7d)`]];
  cards.forEach(([, q], i) => {
    notes[i] = el('small');
    if (/^[mef]/.test(q)) countOf(q, signal).then(({answer}) => { notes[i].textContent = countText(answer); }, () => { /* its page shows the error */ });
  });
  return el('section', {}, el('h3', {class: 'tag head', 'data-member': x}, el('span', {class: 'who'}, el('span', {class: 'it'}, x)), action('Not you?', () => {
    me.set('');
    show();
  })), el('ul', {class: 'cards'}, ...cards.map(([name, q], i) => card({q}, name, q, notes[i]))), el('h3', {}, 'Or start from these'));
}

// share returns a button that shares the address of this page, or copies it, and one that saves its circles, if it has some.
function share() {
  const button = action('Share', async () => {
    try {
      if (navigator.share) return await navigator.share({title: document.title, url: location.href});
      await navigator.clipboard.writeText(location.href);
      button.textContent = 'Link copied';
    } catch { /* the viewer changed their mind */ }
  });
  return [button, action('Save picture', saveCircles, {class: 'plain saves'})];
}
